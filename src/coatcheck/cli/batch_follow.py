"""Shows a batch, at its end if it is to be watched; then the exit code says how that was."""

from __future__ import annotations

import json

import typer

from coatcheck.cli.batch_show import has_succeeded, report
from coatcheck.cli.batch_watch import watch
from coatcheck.cli.console import err, plain
from coatcheck.cli.entry import EXIT_INTERRUPTED
from coatcheck.cli.errors import EXIT_FAILED
from coatcheck.cli.remote import Server
from coatcheck.client import Batch


def show(batch: Batch, at: Server, *, watching: bool, as_json: bool = False) -> None:
    """The batch on a few lines, or as JSON. Raises Exit if it was watched and went wrong."""
    if watching:
        follow(batch, at)
    typer.echo(json.dumps(batch.raw) if as_json else report(batch))
    if watching:
        require_success(batch, at)


def follow(batch: Batch, at: Server, *, as_json: bool = False) -> None:
    """Until its end. Whoever does not wait for that is told how to come back to it."""
    try:
        watch(batch, as_json=as_json)
    except KeyboardInterrupt:
        again = at.command(f"batch status {batch.id} --watch")
        err.print(f"The batch goes on. To look again: {again}", markup=False)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def require_success(batch: Batch, at: Server) -> None:
    """End with an error if not every task has succeeded, and say what can be done about it."""
    if has_succeeded(batch):
        return
    if batch.counts.failed:
        _say_how_the_first_failed(batch)
        for arguments in (
            f"tasks {batch.id} --status failed",
            f"rerun {batch.id} --failed --watch",
        ):
            err.print(f"  {at.command(f'batch {arguments}')}", style="dim", markup=False)
    raise typer.Exit(EXIT_FAILED)


def _say_how_the_first_failed(batch: Batch) -> None:
    """If all failed for one reason, it is this one."""
    first = next(iter(batch.tasks(status="failed")), None)
    if first is not None and first.error is not None:
        said = plain(f"{first.error.code}: {first.error.message}")
        err.print(f"task {first.index} failed: {said}", style="red", markup=False)
