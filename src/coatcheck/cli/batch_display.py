"""Shows batches as text, and follows one to its end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, Protocol

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from coatcheck.cli.console import err, plain
from coatcheck.cli.entry import EXIT_INTERRUPTED
from coatcheck.cli.errors import EXIT_FAILED
from coatcheck.cli.job_display import TaskRate, json_line
from coatcheck.cli.server_address import ServerConfig
from coatcheck.client import Batch, BatchCounts, BatchTask, DeadLetter
from coatcheck.encoding import encode

_RESULT_CHARACTERS_MAX: Final = 200
_STATUSES: Final = ("pending", "running", "succeeded", "failed", "cancelled")


def report(batch: Batch) -> str:
    """A batch on several lines."""
    rows = [
        ("batch", f"{batch.id}  {batch.status}"),
        ("target", f"{batch.service} {batch.endpoint}"),
        ("counts", _counted(batch.counts)),
        ("list", f"{_number(batch.ingest.lines, 'line')}, {batch.ingest.bad_lines:,} invalid"),
    ]
    if batch.error is not None:
        rows.append(("error", f"{batch.error.message} ({batch.error.code})"))
    if len(batch.runs) > 1:
        rows += [
            (f"run {run.number}", f"{run.id}  {run.status}  {_counted(run.counts)}")
            for run in batch.runs
        ]
        rows.append(("all runs", _counted(batch.job_counts)))
    return "\n".join(f"{name:<9}{value}" for name, value in rows)


def summary(batch: Batch) -> str:
    """A batch on one line."""
    return f"{batch.status}  {_counted(batch.counts)}  {batch.service} {batch.endpoint}"


def has_succeeded(batch: Batch) -> bool:
    """Whether every line was a valid task and every task succeeded."""
    return (
        batch.status == "completed"
        and batch.counts.succeeded == batch.counts.total
        and batch.ingest.bad_lines == 0
    )


def task_line(task: BatchTask) -> str:
    """A task on one line: index, status, name, and its result or error."""
    outcome = ""
    if task.error is not None:
        outcome = f"{task.error.code}: {task.error.message}"
    elif task.result_url is not None:
        outcome = "(large result)"
    elif task.status == "succeeded":
        outcome = encode(task.result).decode()
    if len(outcome) > _RESULT_CHARACTERS_MAX:
        outcome = f"{outcome[:_RESULT_CHARACTERS_MAX]}..."
    # Names and results may contain control characters.
    shown = f"{task.index:>7}  {task.status:<9}  {task.custom_id or task.id}  {outcome}"
    return "".join(c if c.isprintable() else " " for c in shown).rstrip()


def dead_letter_line(letter: DeadLetter) -> str:
    """A list of tasks that could not be processed, on one line."""
    return f"{letter.id}  batch {letter.job_id}  {letter.error.code}: {letter.error.message}"


def _counted(counts: BatchCounts) -> str:
    numbers = {name: getattr(counts, name) for name in _STATUSES}
    return ", ".join(
        [_number(counts.total, "task"), *(f"{n:,} {name}" for name, n in numbers.items() if n)]
    )


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


LOOK_SECONDS: Final = 0.5
"""How long the server may hold a request while the batch has not ended."""
LINE_SECONDS: Final = 10.0
"""The interval between lines when stderr is not a terminal."""


class _Display(Protocol):
    def show(self, batch: Batch, task_rate: TaskRate, ingest: TaskRate, /) -> None: ...


def watch(batch: Batch, *, as_json: bool = False) -> Batch:
    """Show progress until the batch ends, and return the ended batch."""
    ended, ingested = TaskRate(), TaskRate()
    with _display(as_json) as display:
        while True:
            asked_at = time.monotonic()
            ended.look(asked_at, batch.counts.ended)
            ingested.look(asked_at, batch.ingest.lines)
            display.show(batch, ended, ingested)
            if batch.terminal:
                return batch
            batch.refresh(wait=LOOK_SECONDS)
            if not batch.terminal:
                # A server that is shutting down answers at once.
                time.sleep(max(0.0, asked_at + LOOK_SECONDS - time.monotonic()))


@contextmanager
def _display(as_json: bool) -> Iterator[_Display]:
    if as_json:
        yield _JsonLines()
        return
    if not err.is_terminal:
        yield _BatchLines()
        return
    with _bar() as progress:
        yield _Bar(progress)


def _bar() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[figures]}"),
        console=err,
        expand=True,
    )


class _Bar:
    """A progress bar."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID = progress.add_task("", total=None, figures="")

    def show(self, batch: Batch, task_rate: TaskRate, ingest: TaskRate) -> None:
        counts = batch.counts
        self._progress.update(
            self._task,
            description=_heading(batch, ingest),
            total=counts.total or None,
            completed=counts.ended,
            figures=figures(batch, task_rate),
        )


class _BatchLines:
    """Prints a line at each change of status, and every ``LINE_SECONDS``."""

    def __init__(self) -> None:
        self._status = ""
        self._printed_at = 0.0

    def show(self, batch: Batch, task_rate: TaskRate, ingest: TaskRate) -> None:
        now = time.monotonic()
        if batch.status == self._status and now < self._printed_at + LINE_SECONDS:
            return
        self._status, self._printed_at = batch.status, now
        err.print(f"{_heading(batch, ingest)}  {figures(batch, task_rate)}", markup=False)


class _JsonLines:
    """Prints a line of JSON on stdout at each change, except the last."""

    def __init__(self) -> None:
        self._printed: Mapping[str, Any] | None = None

    def show(self, batch: Batch, _rate: TaskRate, _ingest: TaskRate) -> None:
        if batch.raw != self._printed and not batch.terminal:
            json_line("batch", batch=batch.raw)
        self._printed = batch.raw


def figures(batch: Batch, task_rate: TaskRate) -> str:
    """Ended and total tasks, rate, time left, and failures."""
    counts = batch.counts
    parts = [f"{counts.ended:,}/{counts.total:,}"]
    if not batch.terminal:
        rate = task_rate.per_second
        parts.append("-/s" if rate is None else f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
        left = task_rate.seconds_for(counts.total - counts.ended)
        if batch.status == "running" and left is not None:
            parts.append(f"ETA {timedelta(seconds=round(left))}")
    if counts.failed:
        parts.append(f"{counts.failed:,} failed")
    if counts.cancelled:
        parts.append(f"{counts.cancelled:,} cancelled")
    if batch.ingest.bad_lines:
        bad = batch.ingest.bad_lines
        parts.append(f"{bad:,} invalid {'line' if bad == 1 else 'lines'}")
    return "  ".join(parts)


def _heading(batch: Batch, ingest: TaskRate) -> str:
    if batch.status != "ingesting":
        return "cancelling" if batch.cancel_requested else batch.status
    rate = ingest.per_second
    speed = f" at {rate:,.0f}/s" if rate else ""
    return f"ingesting {batch.ingest.lines:,} lines{speed}"


def show(batch: Batch, at: ServerConfig, *, watching: bool, as_json: bool = False) -> None:
    """Print the batch as text or JSON. When watching, raises Exit unless every task succeeds."""
    if watching:
        follow(batch, at)
    typer.echo(json.dumps(batch.raw) if as_json else report(batch))
    if watching:
        require_success(batch, at)


def follow(batch: Batch, at: ServerConfig, *, as_json: bool = False) -> None:
    """Watch until the batch ends. Ctrl-C prints the command that resumes watching."""
    try:
        watch(batch, as_json=as_json)
    except KeyboardInterrupt:
        again = at.command(f"batch status {batch.id} --watch")
        err.print(f"The batch keeps running. To watch it again: {again}", markup=False)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def require_success(batch: Batch, at: ServerConfig) -> None:
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
