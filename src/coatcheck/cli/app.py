"""The ``coatcheck`` command."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, Final

import typer

from coatcheck.cli.late import Late, LateGroup
from coatcheck.version import __version__

COMPLETE_VARIABLE: Final = "_COATCHECK_COMPLETE"
"""Set by a shell that wants to know how a command goes on."""

_RUN: Final = "Run it"
_JOBS: Final = "Jobs"
_MANY: Final = "Many tasks, and graphs of code"
_TOLD: Final = "Webhooks"
_TENANTS: Final = "Organisations, keys, usage"
_ITSELF: Final = "This command"

COMMANDS: Final = (
    Late(
        "up",
        "coatcheck.cli.up:up",
        "Start PostgreSQL, the control plane and a worker, and keep them running until Ctrl-C.",
        _RUN,
    ),
    Late(
        "serve",
        "coatcheck.cli.serve:serve",
        "Serve HTTP on the database named by COATCHECK_DATABASE_URL.",
        _RUN,
    ),
    Late(
        "worker",
        "coatcheck.cli.worker:worker",
        "Run jobs from the database named by COATCHECK_DATABASE_URL.",
        _RUN,
    ),
    Late(
        "migrate",
        "coatcheck.cli.migrate:migrate",
        "Bring the database named by COATCHECK_DATABASE_URL to this version's schema.",
        _RUN,
    ),
    Late(
        "doctor",
        "coatcheck.cli.doctor:doctor",
        "Check settings, database, blob store, clock and versions. Exit code 1 if anything fails.",
        _RUN,
    ),
    Late(
        "services",
        "coatcheck.cli.services:app",
        "List what workers publish; forget endpoints without a worker.",
        _RUN,
    ),
    Late(
        "secrets",
        "coatcheck.cli.secrets:app",
        "Seal the secrets of services with another key.",
        _RUN,
    ),
    Late(
        "submit",
        "coatcheck.cli.submit:submit",
        "Hand a job in, and show it. Exit code 1 if it was waited for and did not complete.",
        _JOBS,
    ),
    Late(
        "watch",
        "coatcheck.cli.job:watch",
        "Follow a job or a batch to its end. Exit code 1 if it does not complete.",
        _JOBS,
    ),
    Late(
        "job",
        "coatcheck.cli.job:job",
        "Show a job.",
        _JOBS,
    ),
    Late(
        "jobs",
        "coatcheck.cli.jobs:jobs",
        "List the jobs of an organisation, newest first; with --json a line of JSON each.",
        _JOBS,
    ),
    Late(
        "logs",
        "coatcheck.cli.logs:logs",
        "Show the log of a job: its lines, alerts, and attempts that failed.",
        _JOBS,
    ),
    Late(
        "explain",
        "coatcheck.cli.explain:explain",
        "Say what a job waits for, its place in the queue, and when it will start and end.",
        _JOBS,
    ),
    Late(
        "cancel",
        "coatcheck.cli.acting:cancel",
        "Ask for the end of jobs. Exit code 1 if one could not be cancelled.",
        _JOBS,
    ),
    Late(
        "retry",
        "coatcheck.cli.acting:retry",
        "Hand in again what jobs that failed were handed in with. Each is a new job.",
        _JOBS,
    ),
    Late(
        "replay",
        "coatcheck.cli.replay:replay",
        "Run a job's handler here with what the job was handed in with, under the debugger.",
        _JOBS,
    ),
    Late(
        "top",
        "coatcheck.cli.top:top",
        "Show lanes, queues, workers, rates and latencies, live: q ends it. In a pipe: once.",
        _JOBS,
    ),
    Late(
        "graphs",
        "coatcheck.cli.graphs:app",
        "Get graphs of code: hand in a folder or a zip, fetch the graph.",
        _MANY,
    ),
    Late(
        "batch",
        "coatcheck.cli.batch:app",
        "Run a job of many tasks: hand a list in, watch it, fetch its results.",
        _MANY,
    ),
    Late(
        "webhooks",
        "coatcheck.cli.webhooks:app",
        "Register who is told of jobs; see what was sent, and send it again.",
        _TOLD,
    ),
    Late(
        "listen",
        "coatcheck.cli.listen:listen",
        "Forward an organisation's webhooks to a URL on this machine, until Ctrl-C.",
        _TOLD,
    ),
    Late(
        "orgs",
        "coatcheck.cli.orgs:app",
        "Create, limit and list organisations.",
        _TENANTS,
    ),
    Late(
        "keys",
        "coatcheck.cli.keys:app",
        "Create, list and revoke API keys.",
        _TENANTS,
    ),
    Late(
        "token",
        "coatcheck.cli.tokens:token",
        "Print a user's token, signed with COATCHECK_JWT_SECRET, or with the secret of `up`.",
        _TENANTS,
    ),
    Late(
        "usage",
        "coatcheck.cli.usage:usage",
        "Show what an organisation has used, by day and endpoint: in the last 30 days by default.",
        _TENANTS,
    ),
    Late(
        "receipt",
        "coatcheck.cli.receipt:app",
        "Verify deletion receipts; print their key.",
        _TENANTS,
    ),
    Late(
        "config",
        "coatcheck.cli.config:app",
        "Show which server commands talk to, and where that is said.",
        _ITSELF,
    ),
    Late(
        "completion",
        "coatcheck.cli.completion:completion",
        "Print what makes a shell complete commands and options.",
        _ITSELF,
    ),
)
"""Each with the first paragraph of its own help, which the tests compare."""


class _Commands(LateGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for command in COMMANDS:
            self.add_command(command)


app = typer.Typer(
    name="coatcheck",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"coatcheck {__version__}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Turns slow work into a job API, on one PostgreSQL."""
    if debug:
        from coatcheck.cli.errors import show_tracebacks

        show_tracebacks()


def main() -> None:
    """Run the command that the arguments name."""
    if COMPLETE_VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    try:
        app()
    finally:
        _let_go_of_a_closed_terminal()


def _let_go_of_a_closed_terminal() -> None:
    """What was still to be shown has nobody to see it; that is no reason to exit with an error."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
