"""``coatcheck replay --local``: runs a job's handler in this process, under the debugger."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from coatcheck.cli.errors import EXIT_FAILED, Misconfigured
from coatcheck.cli.job_filters import JobArgument
from coatcheck.cli.server_address import Server
from coatcheck.cli.server_options import on_server
from coatcheck.client import ConflictError
from coatcheck.domain.errors import SettingsInvalid
from coatcheck.service import Endpoint, load_services


@on_server
def replay(
    at: Server,
    job_id: JobArgument,
    services: Annotated[
        list[str],
        typer.Argument(metavar="MODULE:SERVICE", help="The services to look for its endpoint in."),
    ],
    is_local: Annotated[
        bool, typer.Option("--local", help="Run the job in this process. Required.")
    ] = False,
    breaks: Annotated[
        bool, typer.Option("--break", help="Break at the handler's first line.")
    ] = False,
    debugs: Annotated[
        bool,
        typer.Option("--debugger/--no-debugger", help="Open pdb where the handler fails."),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result on one line.")] = False,
) -> None:
    """Run a job's handler on this machine with the same input, under the debugger.

    Progress and log go to stderr, files to a temporary folder, the result to stdout.
    Nothing is written to the server. Exit code 1 if the handler fails.
    """
    if not is_local:
        raise Misconfigured(
            "--local is required: replay runs the job in this process\n"
            f"To run it again on the server: {at.command(f'retry {job_id}')}"
        )
    with at.client() as client:
        job = client.jobs.get(job_id)
        endpoint = _endpoint(services, job.engine_endpoint)
        try:
            payload = client.jobs.input(job_id)
        except ConflictError as error:
            raise Misconfigured(
                f"{error.message}\nThe server keeps the input of failed and cancelled jobs until "
                "the job expires, unless the endpoint is declared with keep_input=False."
            ) from error
    from coatcheck.cli.local_run import LocalRun

    run = LocalRun(endpoint, job, payload, as_json=as_json)
    interactive = debugs and sys.stdin.isatty()
    if not run.to_its_end(breaks=breaks and interactive, post_mortem=interactive):
        raise typer.Exit(EXIT_FAILED)


def _endpoint(targets: list[str], wanted: str) -> Endpoint:
    found: dict[str, Endpoint] = {}
    try:
        for service in load_services(targets):
            found |= {endpoint.name: endpoint for endpoint in service.endpoints.values()}
    except SettingsInvalid:
        raise
    except Exception as error:
        # The module is user code: importing it may raise anything.
        raise Misconfigured(
            f"cannot load {' '.join(targets)}: {type(error).__name__}: {error}\n"
            "`coatcheck --debug replay ...` shows the traceback."
        ) from error
    if wanted not in found:
        raise Misconfigured(
            f"{' '.join(targets)} does not have the job's endpoint {wanted}\n"
            f"Endpoints: {', '.join(found) or 'none'}."
        )
    return found[wanted]
