"""Watches a batch until it ends: a progress bar on a terminal, otherwise plain lines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, Protocol

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from coatcheck.cli.batch_rate import Pace
from coatcheck.cli.console import err
from coatcheck.cli.job_display import json_line
from coatcheck.client import Batch

LOOK_SECONDS: Final = 0.5
"""How long the server may hold a request while the batch has not ended."""
LINE_SECONDS: Final = 10.0
"""The interval between lines when stderr is not a terminal."""


class _Display(Protocol):
    def show(self, batch: Batch, pace: Pace, ingest: Pace, /) -> None: ...


def watch(batch: Batch, *, as_json: bool = False) -> Batch:
    """Show progress until the batch ends, and return the ended batch."""
    ended, ingested = Pace(), Pace()
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
        yield _Lines()
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

    def show(self, batch: Batch, pace: Pace, ingest: Pace) -> None:
        counts = batch.counts
        self._progress.update(
            self._task,
            description=_heading(batch, ingest),
            total=counts.total or None,
            completed=counts.ended,
            figures=figures(batch, pace),
        )


class _Lines:
    """Prints a line at each change of status, and every ``LINE_SECONDS``."""

    def __init__(self) -> None:
        self._status = ""
        self._printed_at = 0.0

    def show(self, batch: Batch, pace: Pace, ingest: Pace) -> None:
        now = time.monotonic()
        if batch.status == self._status and now < self._printed_at + LINE_SECONDS:
            return
        self._status, self._printed_at = batch.status, now
        err.print(f"{_heading(batch, ingest)}  {figures(batch, pace)}", markup=False)


class _JsonLines:
    """Prints a line of JSON on stdout at each change, except the last."""

    def __init__(self) -> None:
        self._printed: Mapping[str, Any] | None = None

    def show(self, batch: Batch, _pace: Pace, _ingest: Pace) -> None:
        if batch.raw != self._printed and not batch.terminal:
            json_line("batch", batch=batch.raw)
        self._printed = batch.raw


def figures(batch: Batch, pace: Pace) -> str:
    """Ended and total tasks, rate, time left, and failures."""
    counts = batch.counts
    parts = [f"{counts.ended:,}/{counts.total:,}"]
    if not batch.terminal:
        rate = pace.per_second
        parts.append("-/s" if rate is None else f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
        left = pace.seconds_for(counts.total - counts.ended)
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


def _heading(batch: Batch, ingest: Pace) -> str:
    if batch.status != "ingesting":
        return "cancelling" if batch.cancel_requested else batch.status
    rate = ingest.per_second
    speed = f" at {rate:,.0f}/s" if rate else ""
    return f"ingesting {batch.ingest.lines:,} lines{speed}"
