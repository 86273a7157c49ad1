"""What the server says of an organisation's jobs, whichever surface they came in by."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from coatcheck.client.batch_body import converted
from coatcheck.client.job_body import JobError, Progress


class JobDetails(msgspec.Struct, frozen=True):
    """A job of any surface, in the words of the engine, as it was when the server was asked.

    ``surface`` is where it was handed in, ``endpoint`` what people call what it does, ``lane`` and
    ``state`` are the engine's. ``attempts`` were begun; of them ``failures`` count against
    ``failures_max``, and ``crashes``, ``interruptions`` and ``unreachables`` do not. ``result`` is
    shown by ``jobs.get`` only, and if it is not too long (``result_truncated``). ``input_kept``
    says whether it can be retried; ``retry_of`` and ``retried_as`` name its other tries. ``urls``
    has where else it is found, ``raw`` the server's own JSON.
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
        """The same as ``state``: jobs of surfaces have theirs under this name."""
        return self.state


def job_details(raw: dict[str, Any]) -> JobDetails:
    """The job that an answer shows."""
    return msgspec.structs.replace(converted(raw, JobDetails), raw=raw)


class JobDetailsPage(msgspec.Struct, frozen=True):
    """Some jobs of an organisation, newest first. ``next`` is the cursor of those after them.

    A page may be short, or even empty, and still have a ``next``: the server looks at so many jobs
    for each.
    """

    items: tuple[JobDetails, ...]
    next: str | None = None


class TimelineEntry(msgspec.Struct, frozen=True):
    """Something that happened to a job, and when."""

    at: datetime
    kind: str
    state: str | None = None
    attempt: int | None = None
    code: str | None = None
    message: str | None = None


class JobLogEntry(msgspec.Struct, frozen=True):
    """A line of a job's log: what its handler said, an alert, or an attempt that failed.

    ``seq`` is what to give to ``jobs.log(..., after=seq)`` to go on behind it.
    """

    seq: int
    at: datetime
    kind: str
    message: str = ""
    level: str | None = None
    data: Any = None


class JobBlocker(msgspec.Struct, frozen=True):
    """One thing that a job waits for.

    ``kind`` is stable, ``message`` a sentence. Of a limit there is its ``key``, its ``limit``, how
    many it has ``held``, and some of the jobs that hold them (``holders``).
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
    """When a job will probably start and end, in seconds from now: as likely as not (``p50``), or
    nine times of ten (``p90``)."""

    start_p50: float | None = None
    start_p90: float | None = None
    end_p50: float | None = None
    end_p90: float | None = None


class JobExplanation(msgspec.Struct, frozen=True):
    """Why a job is where it is: a ``summary`` in a sentence, and each of its ``blockers``.

    ``position`` is its place in its queue, 1 for the next. ``retry_after`` is the number of seconds
    after which it is worth to ask again.
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
    """What came of one job of many: ``new_id`` if it was retried, ``code`` and ``message`` if it
    was not to be done."""

    id: str
    ok: bool
    new_id: str | None = None
    code: str | None = None
    message: str | None = None


class BulkOutcomes(msgspec.Struct, frozen=True):
    """What came of each of many jobs. ``more``: others fit the filter, and were not touched yet."""

    items: tuple[BulkOutcome, ...]
    more: bool = False


class TimelineAnswer(msgspec.Struct, frozen=True):
    """As the server sends it."""

    items: tuple[TimelineEntry, ...]


class LogAnswer(msgspec.Struct, frozen=True):
    """As the server sends it."""

    items: tuple[JobLogEntry, ...]
    next: int | str | None = None
