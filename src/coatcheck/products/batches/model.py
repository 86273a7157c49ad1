"""The data of batches: a batch has runs, and a run has parts and tasks; blob keys, and errors.

A part is one source of tasks. ``schema/0001_batches.sql`` describes how all of them are stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, NamedTuple
from uuid import UUID

import msgspec

from coatcheck.blobs.keys import owner_of
from coatcheck.domain.errors import Conflict
from coatcheck.domain.failures import FailureCode
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.job import NewJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.service_definition import endpoint_key, engine_name
from coatcheck.domain.states import HELD, State
from coatcheck.domain.webhooks import INTERNAL
from coatcheck.encoding import encode

BATCHES_SERVICE: Final = "batches"
"""The service that ingests lists of tasks and writes exports."""
INGEST_ENDPOINT: Final = engine_name(BATCHES_SERVICE, 1, endpoint_key("post", "/ingest"))
EXPORT_ENDPOINT: Final = engine_name(BATCHES_SERVICE, 1, endpoint_key("post", "/export"))
"""The engine's endpoints of the internal jobs that ingest and export."""

_INTERNAL_RETRIES: Final = 5
_INTERNAL_KEEP_SECONDS: Final = 3_600
"""Retention of these jobs. Nobody reads them; the time only has to be long enough for maintenance
to copy the error of a failed one."""

PartSource = Literal["inline", "upload", "pieces", "rerun"]

ABANDONED_BATCH_SECONDS: Final = 14 * 86_400
"""How long a list that failed waits before its batch is removed, and how long an open batch waits
for more tasks before it is closed."""


def internal_job(
    org: str, lane: Lane, endpoint: str, payload: object, request_id: str | None
) -> NewJob:
    """A job of the built-in service. No caller can read it."""
    options = {
        "keep_completed_seconds": _INTERNAL_KEEP_SECONDS,
        "keep_failed_seconds": _INTERNAL_KEEP_SECONDS,
        "webhook": INTERNAL,
    }
    return NewJob(
        org=org,
        uuid=new_id(),
        lane=lane.value,
        endpoint=endpoint,
        queue_key="",
        failures_max=_INTERNAL_RETRIES,
        payload=encode(payload),
        request_id=request_id,
        options=encode(options).decode(),
    )


class BatchFailure(FailureCode):
    """Batches: their lists and exports"""

    LIST_MISSING = "list_missing"
    """The uploaded list is missing."""
    LIST_CHANGED = "list_changed"
    """The uploaded list was replaced by another one."""
    LIST_TRUNCATED = "list_truncated"
    """The uploaded list is shorter than it was."""
    LIST_EMPTY = "list_empty"
    """The list is empty, or has only blank lines."""
    NO_USABLE_LINE = "no_usable_line"
    """No line of the list is a task."""
    TOO_MANY_TASKS = "too_many_tasks"
    """The run would have more tasks than a run may have."""
    INGEST_LOST = "ingest_lost"
    """The job that ingests the list was lost too often."""
    EXPORT_NOT_FOUND = "export_not_found"
    """There is no such export any more."""
    EXPORT_LOST = "export_lost"
    """The job that writes the export was lost."""
    BATCH_REMOVED = "batch_removed"
    """The run was removed during its export."""
    BLOB_STORE_UNAVAILABLE = "blob_store_unavailable"
    """The blob store could not be used. Retried."""


class BatchState(StrEnum):
    """The status of a batch's current run."""

    INGESTING = "ingesting"
    OPEN = "open"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED_INGEST = "failed_ingest"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether the status is final. A failed ingest is, until a redrive, a rerun or a DELETE."""
        return self in (BatchState.COMPLETED, BatchState.CANCELLED, BatchState.FAILED_INGEST)


class TaskStatus(StrEnum):
    """The status of a task in the batches API."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


END_STATES: Final = {
    TaskStatus.SUCCEEDED: State.COMPLETED,
    TaskStatus.FAILED: State.FAILED,
    TaskStatus.CANCELLED: State.CANCELLED,
}
"""The final states of the jobs that are tasks."""
_END_STATUSES: Final = {state: status for status, state in END_STATES.items()}


def task_status(state: State) -> TaskStatus:
    """The status of a task whose job is in ``state``."""
    return TaskStatus.RUNNING if state in HELD else _END_STATUSES.get(state, TaskStatus.PENDING)


def task_id(run: UUID, index: int) -> bytes:
    """A task's id: the first 128 bits of SHA-256 of ``{run_id}:{index}``; shown in hex."""
    return hashlib.sha256(f"{to_text(run)}:{index}".encode()).digest()[:16]


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """A run's tasks by status, at one moment. ``total`` is how many were written so far."""

    total: int
    running: int
    succeeded: int
    failed: int
    cancelled: int

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.cancelled

    @property
    def pending(self) -> int:
        return self.total - self.running - self.ended

    def __add__(self, other: TaskCounts) -> TaskCounts:
        return TaskCounts(
            self.total + other.total,
            self.running + other.running,
            self.succeeded + other.succeeded,
            self.failed + other.failed,
            self.cancelled + other.cancelled,
        )


NO_TASKS: Final = TaskCounts(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class RunView:
    """A run, as read from the database at one moment."""

    uuid: UUID
    number: int
    parent: UUID | None
    selection: str | None
    status: BatchState
    counts: TaskCounts
    lines: int
    bad_lines: int
    error_code: str | None
    error_message: str | None
    created_at: datetime
    closed_at: datetime | None
    cancel_requested_at: datetime | None
    completed_at: datetime | None
    mirrored: int
    """How many of its first tasks have the same number in the run as their position in the
    batch."""
    replaced_succeeded: int
    replaced_failed: int
    replaced_cancelled: int
    """Its tasks that a later run has repeated, by how they ended in this run."""
    repeats_all: bool
    """Whether it repeats tasks of the batch as a whole, and not only of its parent."""

    @property
    def id(self) -> str:
        return to_text(self.uuid)

    @property
    def tasks(self) -> int:
        return self.counts.total

    @property
    def latest(self) -> TaskCounts:
        """The counts of its tasks that no later run has repeated."""
        counts = self.counts
        replaced = self.replaced_succeeded + self.replaced_failed + self.replaced_cancelled
        return TaskCounts(
            counts.total - replaced,
            counts.running,
            counts.succeeded - self.replaced_succeeded,
            counts.failed - self.replaced_failed,
            counts.cancelled - self.replaced_cancelled,
        )


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch with its runs, oldest first; the last is the current one.

    A list of batches has only the current run of each, and the sum of the ``earlier`` ones.
    """

    org: str
    uuid: UUID
    owner: str
    service: str
    service_endpoint: str
    endpoint: str
    lane: str
    is_open: bool
    concurrency: int | None
    rate_per_second: float | None
    rate_key: str | None
    rate_key_per_second: float | None
    webhook_events: Sequence[str]
    metadata: bytes | None
    payload_prefix: bytes
    payload_suffix: bytes
    created_at: datetime
    completed_at: datetime | None
    expires_at: datetime | None
    runs: Sequence[RunView]
    earlier: TaskCounts = NO_TASKS
    """The counts of the runs that are not in ``runs``, without tasks that a later run repeated."""

    @property
    def id(self) -> str:
        return to_text(self.uuid)

    @property
    def current(self) -> RunView:
        return self.runs[-1]

    @property
    def status(self) -> BatchState:
        return self.current.status

    @property
    def terminal(self) -> bool:
        return self.status.terminal

    @property
    def whole(self) -> TaskCounts:
        """The counts over all runs: each task of the batch once, by its latest result."""
        return sum((run.latest for run in self.runs), self.earlier)


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch to create: everything but its tasks."""

    org: str
    uuid: UUID
    run: UUID
    owner: str
    service: str
    service_endpoint: str
    endpoint: str
    usage_queue_key: str
    lane: str
    failures_max: int
    is_open: bool
    payload_prefix: bytes
    payload_suffix: bytes
    concurrency: int | None
    rate_per_second: float | None
    rate_key: str | None
    rate_key_per_second: float | None
    webhook_url: str | None
    webhook_events: Sequence[str]
    metadata: bytes | None
    keep_seconds: int
    idempotency_key: str | None
    fingerprint: bytes | None
    request_id: str | None
    secrets: UUID | None = None
    """The id of the registered secrets that calls of its tasks use."""


@dataclass(frozen=True, slots=True)
class NewPart:
    """A part to create: one source of tasks."""

    uuid: UUID
    source: PartSource
    source_key: str | None = None
    source_pieces: int | None = None
    source_bytes: int | None = None
    source_etag: str | None = None
    upload: UUID | None = None
    idempotency_key: str | None = None
    fingerprint: bytes | None = None


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to write. ``payload`` includes the batch's prefix and suffix; ``key`` is its rate
    key."""

    payload: bytes
    custom_id: str | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class KnownKey:
    """The batch or part that holds an idempotency key, and the fingerprint of its request."""

    uuid: UUID
    fingerprint: bytes | None


@dataclass(frozen=True, slots=True)
class Created:
    """The outcome of a submission: the id of a batch, or of a part or run of one. ``created`` is
    false if its key was known; ``mismatch`` is true if the key came with another request then."""

    uuid: UUID
    created: bool
    mismatch: bool = False


class RunFilter(msgspec.Struct, frozen=True):
    """Which tasks a rerun took from the runs before it: those of these statuses and error codes."""

    status: list[str] = []
    error_code: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.status or self.error_code)

    @property
    def states(self) -> list[State]:
        """The final states to look for, in this order. Without statuses, all of them."""
        statuses = self.status or END_STATES
        return [state for status, state in END_STATES.items() if status in statuses]


@dataclass(frozen=True, slots=True)
class IngestSnapshot:
    """Everything that the ingest of a part needs, as of one moment. The database may be further."""

    org: str
    batch: UUID
    run: UUID
    part: UUID
    source: PartSource
    source_key: str | None
    source_pieces: int | None
    source_bytes: int | None
    upload: UUID | None
    state: str
    is_next: bool
    """Whether no part before it waits for its ingest."""
    run_tasks: int
    part_offset: int
    part_lines: int
    part_bad_lines: int
    part_tasks: int
    parent_run: UUID | None
    parent_tasks: int
    selection: str | None
    owner: str
    endpoint: str
    lane: str
    failures_max: int
    payload_prefix: bytes
    payload_suffix: bytes
    rate_key: str | None
    notifies_failures: bool
    request_id: str | None
    cancelled: bool
    """Whether the ingest stops: the run was cancelled or completed, or the batch was deleted."""
    source_etag: str | None
    backlog_max: int | None
    """The organisation's limit of waiting jobs; None for no limit."""
    run_number: int
    source_before: int | None
    """For a rerun of the whole batch: it repeats the latest tasks of runs numbered below this."""
    waits_for_a_run: bool
    """Whether it is a rerun that has to wait, because an earlier run has not ended."""


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task, as read from the database at one moment."""

    uuid: UUID
    index: int
    custom_id: str | None
    state: State
    attempts: int
    error_code: str | None
    error_message: str | None
    result: bytes | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    run: UUID
    result_bytes: int | None
    """The length of the result, also if the result itself was left out."""
    position: int
    """Its number in the batch, which is the same in every run that repeats it."""
    input: bytes | None = None
    """Its payload, if it was read alone."""

    @property
    def result_is_left_out(self) -> bool:
        return self.result is None and self.result_bytes is not None

    @property
    def id(self) -> str:
        return self.uuid.hex

    @property
    def status(self) -> TaskStatus:
        return task_status(self.state)


class TaskPlace(NamedTuple):
    """The run of a task, and the task's number in it."""

    run: UUID
    number: int

    @property
    def uuid(self) -> UUID:
        return UUID(bytes=task_id(self.run, self.number))


class EarlierRun(NamedTuple):
    """A run among those of its batch, for reruns and exports. The first ``mirrored`` of its
    ``tasks`` have their positions as their numbers; its ``new_tasks`` are in no run before it. The
    ``latest`` counts are of tasks that no later run has repeated."""

    number: int
    uuid: UUID
    tasks: int
    mirrored: int
    new_tasks: int
    completed_at: datetime | None
    latest_succeeded: int
    latest_failed: int
    latest_cancelled: int


class RunPlace(NamedTuple):
    """A run among those of its batch, to find which of its tasks are the latest of their positions.
    Later runs have all positions below ``mirrored_after``; only runs below ``before`` count."""

    batch: UUID
    run: UUID
    number: int
    mirrored_after: int
    before: int

    @classmethod
    def of(
        cls,
        batch: UUID,
        run: RunView | EarlierRun,
        runs: Sequence[RunView | EarlierRun],
        before: int,
    ) -> RunPlace:
        """The place of ``run`` among ``runs``, which are all runs of the batch."""
        later = (each.mirrored for each in runs if run.number < each.number < before)
        return cls(batch, run.uuid, run.number, max(later, default=0), before)


@dataclass(frozen=True, slots=True)
class BadLine:
    """An invalid line of a list, with its error."""

    line: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class FailedPart:
    """A part whose ingest failed, and which waits for a redrive, a rerun or a DELETE."""

    uuid: UUID
    batch: UUID
    run: UUID
    source: PartSource
    error_code: str
    error_message: str
    lines: int
    tasks: int
    redrives: int
    created_at: datetime
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class ExportView:
    """An export, as read from the database at one moment. A completed one has a blob."""

    uuid: UUID
    batch: UUID
    run: UUID
    state: str
    blob_key: str | None
    size: int | None
    sha256: bytes | None
    tasks_written: int
    error_code: str | None
    error_message: str | None
    created_at: datetime
    completed_at: datetime | None
    expires_at: datetime | None
    all_runs: bool
    """Whether it has the tasks of the batch as a whole, as of ``run`` and the runs before it."""


# Blob keys

_LISTS = "lists"
_EXPORTS = "exports"


def lists_of(deployment: UUID) -> str:
    """The key prefix of task lists that came in a request body."""
    return f"{_LISTS}/{deployment.hex}"


def list_key(deployment: UUID, batch: UUID, part: UUID) -> str:
    """A new key for the pieces of one list (see ``pieces.py``)."""
    return f"{lists_of(deployment)}/{to_text(batch)}/{to_text(part)}/{to_text(new_id())}"


def list_of_piece(blob_key: str) -> tuple[UUID, str] | None:
    """The part of a batch and the list key that a piece belongs to, or None."""
    part = owner_of(blob_key, _LISTS, 6, at=3)
    return None if part is None else (part, blob_key.rpartition("/")[0])


def exports_of(deployment: UUID) -> str:
    """The key prefix of a deployment's exports."""
    return f"{_EXPORTS}/{deployment.hex}"


def export_key(deployment: UUID, batch: UUID, export: UUID) -> str:
    """A new key. Each attempt gets its own, so two attempts never write the same blob."""
    return f"{exports_of(deployment)}/{to_text(batch)}/{to_text(export)}/{to_text(new_id())}"


def export_of(key: str) -> UUID | None:
    """The export that a blob belongs to, or None if the key has another form."""
    return owner_of(key, _EXPORTS, 5, at=3)


# Errors


class BatchConflict(Conflict):
    """The state of the batch does not allow the operation."""

    code = "batch_conflict"


class BatchNotOpen(BatchConflict):
    """Tasks can only be added to an open batch, before it is closed."""

    code = "batch_not_open"


class BatchAlreadyEnded(BatchConflict):
    """A batch that has ended cannot be cancelled."""

    code = "batch_already_ended"


class BatchStillRuns(BatchConflict):
    """A batch cannot be rerun before its run has ended."""

    code = "batch_still_runs"


class TooManyRuns(BatchConflict):
    """A batch has the largest number of runs."""

    code = "too_many_runs"


class NothingToRerun(BatchConflict):
    """No task matches the filter of the rerun."""

    code = "nothing_to_rerun"
