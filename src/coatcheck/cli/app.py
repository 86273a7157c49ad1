"""The ``coatcheck`` command.

All commands together import most of the product: a server, a worker, a client. A command is
imported when it is used, so that ``coatcheck --version`` and ``coatcheck jobs`` are fast.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from coatcheck.cli.plain_values import convert_plain_values
from coatcheck.version import __version__

if TYPE_CHECKING:
    from typer._click import Command, Context


class LazyCommand(TyperCommand):
    """A placeholder with a command's name and help text; ``load`` returns the command itself."""

    def __init__(self, name: str, target: str, help: str, panel: str) -> None:  # noqa: A002 - typer's name
        """``target`` is ``module:attribute`` of a function or a group.

        ``panel`` is the heading that the command is listed under.
        """
        super().__init__(name, help=help, rich_help_panel=panel)
        self._target = target

    def load(self) -> Command:
        """Import and return the command or group."""
        module, _, attribute = self._target.partition(":")
        declared = getattr(import_module(module), attribute)
        if isinstance(declared, typer.Typer):
            return typer.main.get_group(declared)
        alone = typer.Typer(add_completion=False)
        alone.command(self.name)(declared)
        return typer.main.get_command(alone)


class LazyGroup(TyperGroup):
    """A group that imports a command when it runs or shows its help."""

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, LazyCommand):
            command = command.load()
            # From here on garbage is collected (entry.py), but never sought in what was loaded.
            gc.freeze()
            gc.enable()
        return name, command, rest


COMPLETE_VARIABLE: Final = "_COATCHECK_COMPLETE"
"""Set by a shell that asks for completions."""

_RUN: Final = "Run Coatcheck"
_JOBS: Final = "Jobs"
_MANY: Final = "Batches and code graphs"
_WEBHOOKS: Final = "Webhooks"
_TENANTS: Final = "Organisations, keys, usage"
_CLI: Final = "Command line"

COMMANDS: Final = (
    LazyCommand(
        "up",
        "coatcheck.cli.up:up",
        "Start PostgreSQL, the API server and a worker, and run them until Ctrl-C.",
        _RUN,
    ),
    LazyCommand("serve", "coatcheck.cli.serve:serve", "Run the API server.", _RUN),
    LazyCommand(
        "worker", "coatcheck.cli.worker:worker", "Run a worker, which claims and runs jobs.", _RUN
    ),
    LazyCommand(
        "migrate",
        "coatcheck.cli.database:migrate",
        "Upgrade the database to this version's schema.",
        _RUN,
    ),
    LazyCommand(
        "doctor",
        "coatcheck.cli.doctor:doctor",
        "Check settings, database, blob store, clock and versions. Exit code 1 if a check fails.",
        _RUN,
    ),
    LazyCommand(
        "services",
        "coatcheck.cli.services:app",
        "List the endpoints that workers publish; remove those without a worker.",
        _RUN,
    ),
    LazyCommand(
        "secrets",
        "coatcheck.cli.services:secrets",
        "Re-encrypt the secrets of services with another key.",
        _RUN,
    ),
    LazyCommand("submit", "coatcheck.cli.submit:submit", "Submit a job and show it.", _JOBS),
    LazyCommand(
        "watch",
        "coatcheck.cli.jobs:watch",
        "Follow a job or a batch until it ends. Exit code 1 if it does not complete.",
        _JOBS,
    ),
    LazyCommand("job", "coatcheck.cli.jobs:job", "Show a job.", _JOBS),
    LazyCommand("jobs", "coatcheck.cli.jobs:jobs", "List jobs, newest first.", _JOBS),
    LazyCommand(
        "logs",
        "coatcheck.cli.jobs:logs",
        "Show a job's log, its alerts and its failed attempts.",
        _JOBS,
    ),
    LazyCommand(
        "explain",
        "coatcheck.cli.jobs:explain",
        "Explain why a job waits, its queue position, and when it should start and end.",
        _JOBS,
    ),
    LazyCommand("cancel", "coatcheck.cli.submit:cancel", "Cancel jobs.", _JOBS),
    LazyCommand(
        "retry", "coatcheck.cli.submit:retry", "Resubmit failed jobs with the same input.", _JOBS
    ),
    LazyCommand(
        "replay",
        "coatcheck.cli.replay:replay",
        "Run a job's handler on this machine with the same input, under the debugger.",
        _JOBS,
    ),
    LazyCommand(
        "top",
        "coatcheck.cli.top:top",
        "Show a live view of queues, workers, rates and latencies.",
        _JOBS,
    ),
    LazyCommand(
        "graphs",
        "coatcheck.cli.graphs:app",
        "Build a graph of the code in a folder or a zip.",
        _MANY,
    ),
    LazyCommand(
        "batch",
        "coatcheck.cli.batch:app",
        "Run many tasks as one batch: submit a list, watch it, download the results.",
        _MANY,
    ),
    LazyCommand(
        "webhooks",
        "coatcheck.cli.webhooks:app",
        "Manage webhook endpoints; list and resend deliveries.",
        _WEBHOOKS,
    ),
    LazyCommand(
        "listen",
        "coatcheck.cli.webhooks:listen",
        "Forward webhooks to a URL on this machine until Ctrl-C.",
        _WEBHOOKS,
    ),
    LazyCommand(
        "orgs", "coatcheck.cli.orgs:app", "Create, limit and list organisations.", _TENANTS
    ),
    LazyCommand("keys", "coatcheck.cli.keys:app", "Create, list and revoke API keys.", _TENANTS),
    LazyCommand("token", "coatcheck.cli.keys:token", "Print a signed token for a user.", _TENANTS),
    LazyCommand(
        "usage",
        "coatcheck.cli.usage:usage",
        "Show usage by day and endpoint, of the last 30 days by default.",
        _TENANTS,
    ),
    LazyCommand(
        "receipt",
        "coatcheck.cli.receipt:app",
        "Verify deletion receipts; print the public key.",
        _TENANTS,
    ),
    LazyCommand(
        "config",
        "coatcheck.cli.config:app",
        "Show which server commands use, and where that is configured.",
        _CLI,
    ),
    LazyCommand(
        "completion",
        "coatcheck.cli.config:completion",
        "Print a completion script for a shell.",
        _CLI,
    ),
)
"""Each has the first paragraph of its own help text; a test compares the two."""


class _Commands(LazyGroup):
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
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Put slow work behind a job API, on one PostgreSQL."""
    if debug:
        from coatcheck.cli.command_errors import show_tracebacks

        show_tracebacks()


def main() -> None:
    """Run the command that the arguments name."""
    convert_plain_values()
    if COMPLETE_VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    try:
        app()
    finally:
        _ignore_closed_streams()


def _ignore_closed_streams() -> None:
    """Drop buffered output if the reader has gone, so that it does not become an error at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
