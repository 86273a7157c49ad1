"""The ``coatcheck`` command."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from coatcheck.cli import batch, keys, orgs, receipt
from coatcheck.cli.doctor import doctor
from coatcheck.cli.errors import show_tracebacks
from coatcheck.cli.jobs import job, submit
from coatcheck.cli.migrate import migrate
from coatcheck.cli.serve import serve
from coatcheck.cli.up import up
from coatcheck.cli.worker import worker
from coatcheck.version import __version__

app = typer.Typer(
    name="coatcheck",
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
        show_tracebacks()


for command in (up, serve, worker, migrate, doctor, submit, job):
    app.command()(command)
for group in (batch.app, orgs.app, keys.app, receipt.app):
    app.add_typer(group)


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
