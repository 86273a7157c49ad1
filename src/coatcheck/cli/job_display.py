"""Displays of a job being watched: a progress bar, plain lines, JSON lines, or nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from coatcheck.cli.batch_rate import Pace
from coatcheck.cli.console import err, plain
from coatcheck.cli.job_show import span
from coatcheck.client import JobExplanation
from coatcheck.encoding import encode

LINE_SECONDS: Final = 10.0
"""The interval between lines of progress when stderr is not a terminal."""
_PARTS: Final = 1_000_000
_FAST: Final = 0.01
"""One percent per second; slower rates are shown per minute."""
_LEVEL_STYLES: Final = {"warning": "yellow", "error": "red", "debug": "dim"}


class Display(Protocol):
    """Receives the events of a job."""

    def state(self, state: str, attempt: int) -> None: ...
    def progress(self, fraction: float | None, note: str | None) -> None: ...
    def log(self, data: Mapping[str, Any]) -> None: ...
    def why(self, explanation: JobExplanation) -> None: ...


class Silent:
    """Shows nothing: for callers that only want the final state."""

    def state(self, state: str, attempt: int) -> None:
        pass

    def progress(self, fraction: float | None, note: str | None) -> None:
        pass

    def log(self, data: Mapping[str, Any]) -> None:
        pass

    def why(self, explanation: JobExplanation) -> None:
        pass


class JsonLines:
    """Prints each event as a line of JSON on stdout; ``kind`` names the event."""

    def state(self, state: str, attempt: int) -> None:
        json_line("state", state=state, attempt=attempt)

    def progress(self, fraction: float | None, note: str | None) -> None:
        json_line("progress", fraction=fraction, note=note)

    def log(self, data: Mapping[str, Any]) -> None:
        json_line("log", entry=data)

    def why(self, explanation: JobExplanation) -> None:
        json_line("why", explanation=explanation)


def json_line(kind: str, **fields: Any) -> None:
    """Print one event as a line of JSON."""
    typer.echo(encode({"kind": kind, **fields}))


@contextmanager
def display(*, wanted: bool = True, as_json: bool = False) -> Iterator[Display]:
    """The display for where stderr goes, or JSON lines on stdout."""
    if as_json:
        yield JsonLines()
    elif not wanted:
        yield Silent()
    elif not err.is_terminal:
        yield Lines()
    else:
        with _bar() as progress:
            yield Bar(progress)


def _bar() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[figures]}", markup=False),
        console=err,
        expand=True,
    )


class Bar:
    """A progress bar, with the job's log printed above it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID = progress.add_task("", total=None, figures="")
        self._pace = Pace()
        self._state = ""
        self._attempt = 0
        self._note: str | None = None
        self._fraction: float | None = None
        self._why = ""

    def state(self, state: str, attempt: int) -> None:
        # The event "processing" may arrive after the first progress of the same attempt.
        is_same_attempt = state == "processing" and attempt == self._attempt
        if state != self._state and not is_same_attempt:
            self._pace, self._why, self._fraction = Pace(), "", None
        self._state, self._attempt = state, attempt
        self._draw()

    def progress(self, fraction: float | None, note: str | None) -> None:
        self._fraction, self._note, self._why = fraction, note, ""
        if fraction is not None:
            self._pace.look(time.monotonic(), round(fraction * _PARTS))
        self._draw()

    def log(self, data: Mapping[str, Any]) -> None:
        text, style = log_line(data)
        err.print(text, style=style, markup=False)

    def why(self, explanation: JobExplanation) -> None:
        self._why = plain(explanation.summary)
        if (shown := probable_end(explanation)) is not None:
            self._why += f"  ({shown})"
        self._draw()

    def _draw(self) -> None:
        note = plain(self._note) if self._note else ""
        self._progress.update(
            self._task,
            description="  ".join(filter(None, (shown_state(self._state, self._attempt), note))),
            total=None if self._fraction is None else 1.0,
            completed=self._fraction or 0.0,
            figures=self._why or figures(self._fraction, self._pace),
        )


def shown_state(state: str, attempt: int) -> str:
    """A state, with the attempt number from the second attempt on."""
    return state if attempt <= 1 else f"{state} (attempt {attempt})"


class Lines:
    """Prints each change of state, each log line, and progress every ``LINE_SECONDS``."""

    def __init__(self) -> None:
        self._printed_at = float("-inf")
        self._why = ""
        self._pace = Pace()

    def state(self, state: str, attempt: int) -> None:
        self._why = ""
        err.print(shown_state(state, attempt), markup=False)

    def progress(self, fraction: float | None, note: str | None) -> None:
        now = time.monotonic()
        if fraction is not None:
            self._pace.look(now, round(fraction * _PARTS))
        if now < self._printed_at + LINE_SECONDS:
            return
        self._printed_at = now
        parts = filter(None, (figures(fraction, self._pace), plain(note or "")))
        err.print("  ".join(parts), markup=False)

    def log(self, data: Mapping[str, Any]) -> None:
        err.print(log_line(data)[0], markup=False)

    def why(self, explanation: JobExplanation) -> None:
        if explanation.summary != self._why:
            self._why = explanation.summary
            err.print(plain(explanation.summary), markup=False)


def figures(fraction: float | None, pace: Pace) -> str:
    """Progress in percent, its rate, and the estimated time left."""
    if fraction is None:
        return ""
    parts = [f"{fraction:.0%}"]
    rate = (pace.per_second or 0.0) / _PARTS
    if rate >= _FAST:
        parts.append(f"{rate:.1%}/s")
    elif rate:
        parts.append(f"{rate * 60:.1%}/min")
    left = pace.seconds_for(round((1 - fraction) * _PARTS))
    if left is not None and fraction < 1:
        parts.append(f"ETA {span(left)}")
    return "  ".join(parts)


def probable_end(explanation: JobExplanation) -> str | None:
    """The median estimate of when the job starts or ends."""
    eta = explanation.eta
    if eta is None:
        return None
    if eta.start_p50:
        return f"starts in about {span(eta.start_p50)}"
    return f"ETA {span(eta.end_p50)}" if eta.end_p50 else None


def log_line(data: Mapping[str, Any]) -> tuple[str, str | None]:
    """A log line as text, and its style."""
    level = str(data.get("level") or data.get("code") or "info")
    fields = data.get("fields") or data.get("data") or {}
    shown_fields = (
        "".join(f"  {name}={value}" for name, value in fields.items())
        if isinstance(fields, Mapping)
        else ""
    )
    at = str(data.get("at", ""))[11:19]
    return plain(
        f"{at} {level:<7} {data.get('message', '')}{shown_fields}"
    ).strip(), _LEVEL_STYLES.get(level)
