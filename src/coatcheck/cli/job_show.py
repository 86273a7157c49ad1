"""Formats jobs as text."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Final

import typer

from coatcheck.cli.console import out, plain
from coatcheck.client import JobDetails
from coatcheck.encoding import encode

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
