"""``coatcheck replay --local``: a job's input once more, in this process, under the debugger."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from coatcheck.cli.errors import EXIT_FAILED, Misconfigured
from coatcheck.cli.job_filters import JobArgument
from coatcheck.cli.remote import Server
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
        typer.Argument(metavar="MODULE:SERVICE", help="The services that have its endpoint."),
    ],
    is_local: Annotated[
        bool, typer.Option("--local", help="Run it in this process. There is no other way yet.")
    ] = False,
    breaks: Annotated[
        bool, typer.Option("--break", help="Stop at the handler's first line.")
    ] = False,
    debugs: Annotated[
        bool,
        typer.Option("--debugger/--no-debugger", help="Open pdb where it failed."),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one line.")] = False,
) -> None:
    """Run a job's handler here with what the job was handed in with, under the debugger.

    Its progress and log go to the terminal, its files to a temporary folder, its
    result to stdout. Nothing is written to the server. Exit code 1 if it fails.
    """
    if not is_local:
        raise Misconfigured(
            "say --local: the job is run in this process\n"
            f"To have the server run it again: {at.command(f'retry {job_id}')}"
        )
    with at.client() as client:
        job = client.jobs.get(job_id)
        endpoint = _endpoint(services, job.engine_endpoint)
        try:
            payload = client.jobs.input(job_id)
        except ConflictError as error:
            raise Misconfigured(
                f"{error.message}\nInputs of jobs that failed or were cancelled are kept, as long"
                " as the job is and its endpoint does not say keep_input=False."
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
        # The module is the user's: it may fail to load in any way there is.
        raise Misconfigured(
            f"loading {' '.join(targets)} failed: {type(error).__name__}: {error}\n"
            "`coatcheck --debug replay ...` shows the traceback."
        ) from error
    if wanted not in found:
        raise Misconfigured(
            f"{' '.join(targets)} has no endpoint {wanted}, which the job is of\n"
            f"It has: {', '.join(found) or 'none'}."
        )
    return found[wanted]
