"""Displays of a job being watched: a progress bar, plain lines, JSON lines, or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from coatcheck.cli.command_errors import EXIT_FAILED
from coatcheck.cli.console import err, out, plain
from coatcheck.cli.entry import EXIT_INTERRUPTED
from coatcheck.cli.server_address import ServerConfig
from coatcheck.client import AsyncClient, ClientError, JobDetails, JobExplanation
from coatcheck.encoding import encode

WINDOW_SECONDS: Final = 30.0
"""The rate is measured over this window: older samples say little about what comes next."""


class TaskRate:
    """The growth rate of a number, from samples."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def look(self, at: float, number: int) -> None:
        """Add a sample at a time in seconds. A smaller number than before starts over."""
        if self._samples and number < self._samples[-1][1]:
            self._samples.clear()
        self._samples.append((at, number))
        while len(self._samples) > 2 and self._samples[1][0] <= at - WINDOW_SECONDS:
            self._samples.popleft()

    @property
    def per_second(self) -> float | None:
        """The rate; None before there are two samples."""
        if len(self._samples) < 2:
            return None
        (first_at, first), (last_at, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else None

    def seconds_for(self, more: int) -> float | None:
        """The time that ``more`` will take; None if the rate is zero or unknown."""
        rate = self.per_second
        return more / rate if rate else None


STATE_STYLES: Final = {
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "processing": "cyan",
    "finalizing": "cyan",
    "dispatching": "cyan",
    "retrying": "magenta",
}
_RESULT_CHARACTERS_MAX: Final = 2_000
_ERROR_CHARACTERS_MAX: Final = 120


def show(job: JobDetails, *, as_json: bool) -> None:
    """Print a job: as text on a terminal, as JSON in a pipe or if ``as_json``."""
    if not sys.stdout.isatty():
        typer.echo(json.dumps(job.raw))
    elif as_json:
        for text in json.dumps(job.raw, indent=2, ensure_ascii=False).splitlines():
            out.print(plain(text), markup=False)
    else:
        for name, text, style in rows(job):
            out.print(f"{name:<11}", style="dim", end="")
            out.print(text, style=style, markup=False)


def rows(job: JobDetails) -> list[tuple[str, str, str | None]]:
    """The rows that describe a job: heading, text and style."""
    fields: list[tuple[str, str | None, str | None]] = [
        ("job", job.id, "bold"),
        ("state", job.state, STATE_STYLES.get(job.state)),
        ("endpoint", f"{what(job)}  ({job.surface}, {job.engine_endpoint})", None),
        ("lane", job.lane, None),
        ("owner", job.owner, None),
        ("batch", job.batch_id, None),
        ("attempts", _attempts(job), None),
        ("progress", _progress(job), None),
        ("error", _error(job), "red" if job.state == "failed" else None),
        ("created", _moment(job.created_at), None),
        ("runs from", None if job.terminal or job.started_at else _due(job), None),
        ("started", _moment(job.started_at), None),
        ("finished", _finished(job), None),
        ("kept until", _moment(job.expires_at), None),
        ("key", job.idempotency_key, None),
        ("request", job.request_id, None),
        ("runs as", job.execution_id, None),
        ("retry of", job.retry_of, None),
        ("retried as", job.retried_as, None),
        ("result", _result(job), None),
    ]
    return [(name, plain(text), style) for name, text, style in fields if text]


def line(job: JobDetails) -> str:
    """A job on one line: id, state, lane, age, endpoint, and why it failed."""
    parts = (job.id, f"{job.state:<11}", f"{job.lane:<8}", f"{age(job):>6}", what(job), brief(job))
    return plain("  ".join(parts)).rstrip()


def what(job: JobDetails) -> str:
    """The service and endpoint of a job, as people write it."""
    if job.service and not job.endpoint.startswith(job.service):
        return f"{job.service} {job.endpoint}".strip()
    return job.endpoint or job.engine_endpoint


def brief(job: JobDetails) -> str:
    """The last column of a list: why the job failed, or its progress."""
    if job.error is not None and job.state != "completed":
        text = f"{job.error.code}: {job.error.message}"
        return text if len(text) <= _ERROR_CHARACTERS_MAX else f"{text[:_ERROR_CHARACTERS_MAX]}..."
    return "" if job.terminal else _progress(job) or ""


def age(job: JobDetails) -> str:
    """How long ago the job was submitted."""
    if job.created_at is None:
        return ""
    return span((datetime.now(UTC) - job.created_at).total_seconds())


def span(seconds: float) -> str:
    """A duration in at most two units: ``45s``, ``3m20s``, ``2h05m``, ``4d``."""
    whole = max(0, round(seconds))
    if whole < 1 and seconds > 0:
        return f"{seconds * 1000:.0f}ms"
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d"


def _attempts(job: JobDetails) -> str:
    others = {
        "failed": job.failures,
        "crashed": job.crashes,
        "interrupted": job.interruptions,
        "target unreachable": job.unreachables,
    }
    counted = [f"{count} {how}" for how, count in others.items() if count]
    return f"{job.attempts}" + (f"  ({', '.join(counted)})" if counted else "")


def _progress(job: JobDetails) -> str | None:
    if job.progress is None or job.terminal:
        return None
    fraction = job.progress.fraction
    parts = [] if fraction is None else [f"{fraction:.0%}"]
    parts += [job.progress.note] if job.progress.note else []
    return "  ".join(parts)


def _error(job: JobDetails) -> str | None:
    return None if job.error is None else f"{job.error.message} ({job.error.code})"


def _due(job: JobDetails) -> str | None:
    if job.run_at is None or job.run_at <= datetime.now(UTC):
        return None
    return _moment(job.run_at)


def _finished(job: JobDetails) -> str | None:
    shown = _moment(job.finished_at)
    if shown is None or job.started_at is None or job.finished_at is None:
        return shown
    lasted: timedelta = job.finished_at - job.started_at
    return f"{shown}  after {span(lasted.total_seconds())}"


def _moment(at: datetime | None) -> str | None:
    return None if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def _result(job: JobDetails) -> str | None:
    if job.result is None:
        if job.result_truncated:
            return f"({job.result_bytes:,} bytes; fetch it from the job's own API)"
        return None
    text = encode(job.result).decode()
    if len(text) > _RESULT_CHARACTERS_MAX:
        return f"{text[:_RESULT_CHARACTERS_MAX]}... (--json shows all of it)"
    return text


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
        self._rate = TaskRate()
        self._state = ""
        self._attempt = 0
        self._note: str | None = None
        self._fraction: float | None = None
        self._why = ""

    def state(self, state: str, attempt: int) -> None:
        # The event "processing" may arrive after the first progress of the same attempt.
        is_same_attempt = state == "processing" and attempt == self._attempt
        if state != self._state and not is_same_attempt:
            self._rate, self._why, self._fraction = TaskRate(), "", None
        self._state, self._attempt = state, attempt
        self._draw()

    def progress(self, fraction: float | None, note: str | None) -> None:
        self._fraction, self._note, self._why = fraction, note, ""
        if fraction is not None:
            self._rate.look(time.monotonic(), round(fraction * _PARTS))
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
            figures=self._why or figures(self._fraction, self._rate),
        )


def shown_state(state: str, attempt: int) -> str:
    """A state, with the attempt number from the second attempt on."""
    return state if attempt <= 1 else f"{state} (attempt {attempt})"


class Lines:
    """Prints each change of state, each log line, and progress every ``LINE_SECONDS``."""

    def __init__(self) -> None:
        self._printed_at = float("-inf")
        self._why = ""
        self._rate = TaskRate()

    def state(self, state: str, attempt: int) -> None:
        self._why = ""
        err.print(shown_state(state, attempt), markup=False)

    def progress(self, fraction: float | None, note: str | None) -> None:
        now = time.monotonic()
        if fraction is not None:
            self._rate.look(now, round(fraction * _PARTS))
        if now < self._printed_at + LINE_SECONDS:
            return
        self._printed_at = now
        parts = filter(None, (figures(fraction, self._rate), plain(note or "")))
        err.print("  ".join(parts), markup=False)

    def log(self, data: Mapping[str, Any]) -> None:
        err.print(log_line(data)[0], markup=False)

    def why(self, explanation: JobExplanation) -> None:
        if explanation.summary != self._why:
            self._why = explanation.summary
            err.print(plain(explanation.summary), markup=False)


def figures(fraction: float | None, task_rate: TaskRate) -> str:
    """Progress in percent, its rate, and the estimated time left."""
    if fraction is None:
        return ""
    parts = [f"{fraction:.0%}"]
    rate = (task_rate.per_second or 0.0) / _PARTS
    if rate >= _FAST:
        parts.append(f"{rate:.1%}/s")
    elif rate:
        parts.append(f"{rate * 60:.1%}/min")
    left = task_rate.seconds_for(round((1 - fraction) * _PARTS))
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


WHY_SECONDS: Final = 3.0
"""How often we ask the server why a job has not started."""
_UNDER_WAY: Final = frozenset({"processing", "finalizing"})


def ended(at: ServerConfig, job: JobDetails, *, shown: bool, as_json: bool = False) -> JobDetails:
    """Wait until the job ends and return it. Ctrl-C prints the command that resumes watching.

    ``shown`` displays its events meanwhile, ``as_json`` prints them as lines of JSON. Both also
    replay the events of a job that has already ended: a short job may end before we can look.
    """
    if job.terminal and not (shown or as_json):
        return job
    try:
        with display(wanted=shown, as_json=as_json) as on:
            return asyncio.run(_follow(at, job, on))
    except KeyboardInterrupt:
        again = at.command(f"watch {job.id}")
        err.print(f"The job keeps running. To watch it again: {again}", markup=False)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def require_completed(at: ServerConfig, job: JobDetails) -> None:
    """Exit with an error if the job did not complete, and print the commands to try next."""
    if job.state == "completed":
        return
    commands = [f"logs {job.id}"] if job.state == "failed" else []
    commands += [f"retry {job.id} --watch"] if job.input_kept else []
    for arguments in commands:
        err.print(f"  {at.command(arguments)}", style="dim", markup=False)
    raise typer.Exit(EXIT_FAILED)


async def _follow(at: ServerConfig, job: JobDetails, on: Display) -> JobDetails:
    async with at.async_client() as client:
        follower = _Follower(client, job.id, on)
        asking = asyncio.create_task(follower.ask_why())
        try:
            await follower.follow()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        return await client.jobs.get(job.id)


class _Follower:
    def __init__(self, client: AsyncClient, job_id: str, on: Display) -> None:
        self._client = client
        self._id = job_id
        self._on = on
        self._state = ""

    async def follow(self) -> None:
        async with contextlib.aclosing(self._client.jobs.stream(self._id)) as events:
            async for event in events:
                match event.name:
                    case "state" | "end":
                        self._moved(event.data)
                    case "progress":
                        self._on.progress(event.data.get("fraction"), event.data.get("note"))
                    case "log" | "alert":
                        self._on.log(event.data)
                    case _:
                        pass  # the job's output, or an event of a newer server

    async def ask_why(self) -> None:
        """Runs until cancelled, when the job ends."""
        while True:
            await asyncio.sleep(WHY_SECONDS)
            if self._state in _UNDER_WAY:
                continue
            try:
                self._on.why(await self._client.jobs.explain(self._id))
            except ClientError:
                return  # the event stream reports a server that is unreachable

    def _moved(self, job: Mapping[str, Any]) -> None:
        self._state = str(job.get("state", ""))
        self._on.state(self._state, int(job.get("attempts") or 0))
