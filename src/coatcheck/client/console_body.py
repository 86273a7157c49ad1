"""Data types for all jobs of an organisation, of every API."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from coatcheck.client.batch_body import converted
from coatcheck.client.job_body import JobError, Progress


class JobDetails(msgspec.Struct, frozen=True):
    """The state of a job of any API, in the engine's terms, when the server was last asked.

    ``surface`` is the API it was submitted through, ``endpoint`` the public name of what it does;
    ``lane`` and ``state`` are the engine's. ``attempts`` were started; of these ``failures`` count
    against ``failures_max``, while ``crashes``, ``interruptions`` and ``unreachables`` do not. Only
    ``jobs.get`` returns the ``result``, and only if it is not too long (``result_truncated``).
    ``input_kept`` says whether it can be retried; ``retry_of`` and ``retried_as`` name the related
    jobs. ``urls`` has its other URLs, ``raw`` the server's JSON.
    """

    id: str
    state: str
    terminal: bool
    org_id: str = ""
    surface: str = ""
    service: str | None = None
    endpoint: str = ""
    engine_endpoint: str = ""
    lane: str = ""
    owner: str | None = None
    batch_id: str | None = None
    task_id: str | None = None
    attempts: int = 0
    failures: int = 0
    failures_max: int | None = None
    crashes: int = 0
    interruptions: int = 0
    unreachables: int = 0
    progress: Progress | None = None
    error: JobError | None = None
    idempotency_key: str | None = None
    request_id: str | None = None
    trace_id: str | None = None
    execution_id: str | None = None
    created_at: datetime | None = None
    run_at: datetime | None = None
    dispatched_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    updated_at: datetime | None = None
    expires_at: datetime | None = None
    start_deadline: datetime | None = None
    input_kept: bool = False
    retry_of: str | None = None
    retried_as: str | None = None
    result: Any = None
    result_bytes: int | None = None
    result_truncated: bool = False
    urls: dict[str, str | None] = {}
    raw: dict[str, Any] = {}

    @property
    def status(self) -> str:
        """The same as ``state``, under the name that other job types use."""
        return self.state


def job_details(raw: dict[str, Any]) -> JobDetails:
    """The job in an answer."""
    return msgspec.structs.replace(converted(raw, JobDetails), raw=raw)


class JobDetailsPage(msgspec.Struct, frozen=True):
    """A page of an organisation's jobs, newest first. ``next`` is the cursor of the next page.

    A page may be short, or even empty, and still have a ``next``: the server examines a limited
    number of jobs per page.
    """

    items: tuple[JobDetails, ...]
    next: str | None = None


class TimelineEntry(msgspec.Struct, frozen=True):
    """An event in a job's history, and its time."""

    at: datetime
    kind: str
    state: str | None = None
    attempt: int | None = None
    code: str | None = None
    message: str | None = None


class JobLogEntry(msgspec.Struct, frozen=True):
    """A line of a job's log: a message of its handler, an alert, or a failed attempt.

    Pass ``seq`` to ``jobs.log(..., after=seq)`` to continue after it.
    """

    seq: int
    at: datetime
    kind: str
    message: str = ""
    level: str | None = None
    data: Any = None


class JobBlocker(msgspec.Struct, frozen=True):
    """One reason why a job waits.

    ``kind`` is stable, ``message`` a sentence. A limit has its ``key``, its ``limit``, the number
    ``held``, and some of the jobs that hold it (``holders``).
    """

    kind: str
    message: str
    key: str | None = None
    limit: float | None = None
    held: float | None = None
    holders: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None


class JobEta(msgspec.Struct, frozen=True):
    """When a job will probably start and end, in seconds from now: the median (``p50``) and the
    90th percentile (``p90``)."""

    start_p50: float | None = None
    start_p90: float | None = None
    end_p50: float | None = None
    end_p90: float | None = None


class JobExplanation(msgspec.Struct, frozen=True):
    """Why a job is in its state: a ``summary`` sentence, and each of its ``blockers``.

    ``position`` is its position in its queue, 1 for the next. ``retry_after`` is the number of
    seconds after which asking again is worthwhile.
    """

    job_id: str
    state: str
    terminal: bool
    summary: str
    blockers: tuple[JobBlocker, ...] = ()
    position: int | None = None
    eta: JobEta | None = None
    retry_after: float | None = None


class BulkOutcome(msgspec.Struct, frozen=True):
    """The outcome for one of many jobs: ``new_id`` if it was retried, ``code`` and ``message`` if
    it was refused."""

    id: str
    ok: bool
    new_id: str | None = None
    code: str | None = None
    message: str | None = None


class BulkOutcomes(msgspec.Struct, frozen=True):
    """The outcomes for many jobs. ``more``: other jobs match the filter, and are untouched."""

    items: tuple[BulkOutcome, ...]
    more: bool = False


class TimelineAnswer(msgspec.Struct, frozen=True):
    """The server's answer."""

    items: tuple[TimelineEntry, ...]


class LogAnswer(msgspec.Struct, frozen=True):
    """The server's answer."""

    items: tuple[JobLogEntry, ...]
    next: int | str | None = None
