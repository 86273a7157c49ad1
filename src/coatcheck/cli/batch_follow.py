"""Shows a batch, or watches it until it ends and sets the exit code."""

from __future__ import annotations

import json

import typer

from coatcheck.cli.batch_show import has_succeeded, report
from coatcheck.cli.batch_watch import watch
from coatcheck.cli.console import err, plain
from coatcheck.cli.entry import EXIT_INTERRUPTED
from coatcheck.cli.errors import EXIT_FAILED
from coatcheck.cli.server_address import Server
from coatcheck.client import Batch


def show(batch: Batch, at: Server, *, watching: bool, as_json: bool = False) -> None:
    """Print the batch as text or JSON. When watching, raises Exit unless every task succeeds."""
    if watching:
        follow(batch, at)
    typer.echo(json.dumps(batch.raw) if as_json else report(batch))
    if watching:
        require_success(batch, at)


def follow(batch: Batch, at: Server, *, as_json: bool = False) -> None:
    """Watch until the batch ends. Ctrl-C prints the command that resumes watching."""
    try:
        watch(batch, as_json=as_json)
    except KeyboardInterrupt:
        again = at.command(f"batch status {batch.id} --watch")
        err.print(f"The batch keeps running. To watch it again: {again}", markup=False)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def require_success(batch: Batch, at: Server) -> None:
    """Exit with an error unless every task succeeded, and print the commands to try next."""
    if has_succeeded(batch):
        return
    if batch.counts.failed:
        _show_first_error(batch)
        for arguments in (
            f"tasks {batch.id} --status failed",
            f"rerun {batch.id} --failed --watch",
        ):
            err.print(f"  {at.command(f'batch {arguments}')}", style="dim", markup=False)
    raise typer.Exit(EXIT_FAILED)


def _show_first_error(batch: Batch) -> None:
    """The first error is often the reason of all."""
    first = next(iter(batch.tasks(status="failed")), None)
    if first is not None and first.error is not None:
        error = plain(f"{first.error.code}: {first.error.message}")
        err.print(f"task {first.index} failed: {error}", style="red", markup=False)
