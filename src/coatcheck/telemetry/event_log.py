"""The high-volume log: one line for each request and for each job's end.

A line is recorded as plain values and written a moment later with others: through ``logging`` each
would cost several times as much as answering the request. The lines look like all others, and go to
the same stream.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import logging
import time
from collections.abc import Mapping, Sequence
from typing import IO, Final
from uuid import UUID

import msgspec

from coatcheck.domain import ids
from coatcheck.domain.job import ClaimedJob
from coatcheck.telemetry.logs import PrettyFormatter, rfc3339

_FLUSH_SECONDS: Final = 0.1
_LINES_MAX: Final = 10_000
"""Recorded lines not yet written; when there are more, they are written at once."""


class _RequestLine(msgspec.Struct):
    time: str
    level: str
    logger: str
    message: str
    request_id: str
    job_id: str | None
    org: str | None
    method: str
    route: str
    status: int
    ms: float


class _JobLine(msgspec.Struct, gc=False):
    time: str
    level: str
    logger: str
    message: str
    request_id: str | None
    job_id: str
    org: str
    endpoint: str
    state: str
    attempt: int
    ms: float | None
    error_code: str | None


_Request = tuple[float, str, str | None, str | None, str, str, int, float]
_Job = tuple[float, str | None, UUID, str, str, str, int, float | None, str | None]


class EventLog:
    """The request and job lines of one process. Off until ``open``: a library logs nothing."""

    def __init__(self) -> None:
        self.is_on = False
        self._handler: logging.StreamHandler[IO[str]] | None = None
        self._requests: list[_Request] = []
        self._jobs: list[_Job] = []
        self._due = False
        self._encode = msgspec.json.Encoder().encode_lines

    def open(self, handler: logging.StreamHandler[IO[str]]) -> None:
        """Write to the stream of ``handler``, in its format."""
        if self._handler is None:
            atexit.register(self.flush)
        self._handler = handler
        self.is_on = True

    def close(self) -> None:
        """Write pending lines, and record no more."""
        self.flush()
        self.is_on = False

    def request(
        self,
        request_id: str,
        method: str,
        route: str,
        status: int,
        seconds: float,
        *,
        org: str | None,
        job_id: str | None,
    ) -> None:
        """Record an answered request. ``route`` is its template, never its path; status 0 means
        that the caller had disconnected."""
        ms = round(seconds * 1_000, 2)
        self._requests.append((time.time(), request_id, job_id, org, method, route, status, ms))
        self._soon()

    def job_ended(
        self,
        job: UUID,
        org: str,
        endpoint: str,
        state: str,
        *,
        request_id: str | None,
        attempt: int,
        seconds: float | None = None,
        error_code: str | None = None,
    ) -> None:
        """Record a job's end. ``seconds`` is the duration of its last attempt, if known."""
        if self.is_on:
            ms = None if seconds is None else round(seconds * 1_000, 2)
            self._jobs.append(
                (time.time(), request_id, job, org, endpoint, state, attempt, ms, error_code)
            )
            self._soon()

    def jobs_completed(self, jobs: Sequence[ClaimedJob], ran_seconds: Sequence[float]) -> None:
        """Record many completed jobs and the duration of the last attempt of each."""
        now = time.time()
        self._jobs += [
            (
                now,
                job.request_id,
                job.uuid,
                job.org,
                job.endpoint,
                "completed",
                job.attempt,
                seconds * 1_000,
                None,
            )
            for job, seconds in zip(jobs, ran_seconds, strict=True)
        ]
        self._soon()

    def flush(self) -> None:
        """Write pending lines."""
        self._due = False
        requests, self._requests = self._requests, []
        jobs, self._jobs = self._jobs, []
        handler = self._handler
        if handler is None or not (requests or jobs):
            return
        if isinstance(handler.formatter, PrettyFormatter):
            for record in [*map(_request_record, requests), *map(_job_record, jobs)]:
                handler.handle(record)
            return
        lines = self._encode([*map(_request_line, requests), *_job_lines(jobs)]).decode()
        handler.acquire()
        try:
            handler.stream.write(lines)
            handler.flush()
        except (OSError, ValueError):
            # As logging does: the reader of our lines is gone, and the work goes on.
            handler.handleError(_request_record(requests[0]) if requests else _job_record(jobs[0]))
        finally:
            handler.release()

    def _soon(self) -> None:
        if len(self._requests) + len(self._jobs) >= _LINES_MAX:
            self.flush()
        elif not self._due:
            self._due = True
            # In an empty context, not in that of the request that was recorded first.
            asyncio.get_running_loop().call_later(
                _FLUSH_SECONDS, self.flush, context=contextvars.Context()
            )


EVENTS: Final = EventLog()
"""The event log of this process."""

_REQUESTS: Final = "coatcheck.requests"
_JOBS: Final = "coatcheck.jobs"


def _request_line(recorded: _Request) -> _RequestLine:
    at, request_id, job_id, org, method, route, status, ms = recorded
    return _RequestLine(
        rfc3339(at),
        "info",
        _REQUESTS,
        "request",
        request_id,
        job_id,
        org,
        method,
        route,
        status,
        ms,
    )


def _job_lines(recorded: Sequence[_Job]) -> list[_JobLine]:
    lines: list[_JobLine] = []
    shown_at, shown = 0.0, rfc3339(0.0)
    job_ids = ids.to_texts([each[2] for each in recorded])
    for job_id, (at, request_id, _, org, endpoint, state, attempt, ms, error_code) in zip(
        job_ids, recorded, strict=True
    ):
        if at != shown_at:  # jobs that completed together have one time
            shown_at, shown = at, rfc3339(at)
        lines.append(
            _JobLine(
                shown,
                "info",
                _JOBS,
                "job ended",
                request_id,
                job_id,
                org,
                endpoint,
                state,
                attempt,
                # Like round(ms, 2), for a third of its cost.
                None if ms is None else int(ms * 100 + 0.5) / 100,
                error_code,
            )
        )
    return lines


def _request_record(recorded: _Request) -> logging.LogRecord:
    at, request_id, job_id, org, method, route, status, ms = recorded
    fields = {"request_id": request_id, "org": org, "job_id": job_id}
    return _record(_REQUESTS, at, f"{method} {route} {status} in {ms:g} ms", fields)


def _job_record(recorded: _Job) -> logging.LogRecord:
    at, request_id, job, org, endpoint, state, attempt, ms, error_code = recorded
    took = "" if ms is None else f" in {ms:.3g} ms"
    fields = {
        "job_id": ids.to_text(job),
        "org": org,
        "attempt": attempt,
        "error_code": error_code,
        "request_id": request_id,
    }
    return _record(_JOBS, at, f"{endpoint} {state}{took}", fields)


def _record(
    logger: str, at: float, message: str, fields: Mapping[str, object]
) -> logging.LogRecord:
    given = {name: value for name, value in fields.items() if value is not None}
    record = logging.makeLogRecord(
        {"name": logger, "levelno": logging.INFO, "levelname": "INFO", "msg": message, **given}
    )
    record.created = at
    return record
