"""The ``coatcheck`` command."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, Final

import typer

from coatcheck.cli.late import Late, LateGroup
from coatcheck.version import __version__

COMMANDS: Final = (
    Late(
        "up",
        "coatcheck.cli.up:up",
        "Start PostgreSQL, the control plane and a worker, and keep them running until Ctrl-C.",
    ),
    Late(
        "serve",
        "coatcheck.cli.serve:serve",
        "Serve HTTP on the database named by COATCHECK_DATABASE_URL.",
    ),
    Late(
        "worker",
        "coatcheck.cli.worker:worker",
        "Run jobs from the database named by COATCHECK_DATABASE_URL.",
    ),
    Late(
        "migrate",
        "coatcheck.cli.migrate:migrate",
        "Bring the database named by COATCHECK_DATABASE_URL to this version's schema.",
    ),
    Late(
        "doctor",
        "coatcheck.cli.doctor:doctor",
        "Check settings, database, blob store, clock and versions. Exit code 1 if anything fails.",
    ),
    Late(
        "submit",
        "coatcheck.cli.jobs:submit",
        "Hand a job in, and show it. Exit code 1 if it was waited for and did not complete.",
    ),
    Late("job", "coatcheck.cli.jobs:job", "Show a job."),
    Late(
        "batch",
        "coatcheck.cli.batch:app",
        "Run a job of many tasks: hand a list in, watch it, fetch its results.",
    ),
    Late(
        "webhooks",
        "coatcheck.cli.webhooks:app",
        "Register who is told of jobs; see what was sent, and send it again.",
    ),
    Late(
        "listen",
        "coatcheck.cli.listen:listen",
        "Forward an organisation's webhooks to a URL on this machine, until Ctrl-C.",
    ),
    Late("orgs", "coatcheck.cli.orgs:app", "Create, limit and list organisations."),
    Late("keys", "coatcheck.cli.keys:app", "Create, list and revoke API keys."),
    Late(
        "token",
        "coatcheck.cli.tokens:token",
        "Print a user's token, signed with COATCHECK_JWT_SECRET, or with the secret of `up`.",
    ),
    Late("receipt", "coatcheck.cli.receipt:app", "Verify deletion receipts; print their key."),
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
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
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
    """The entry point of the ``coatcheck`` script."""
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
