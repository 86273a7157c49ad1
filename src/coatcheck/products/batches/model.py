"""Batches as their parts know them: a batch has runs, a run has parts and tasks.

``schema/batches/0001_batches.sql`` says how they are stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, NamedTuple
from uuid import UUID

from coatcheck.domain.ids import to_text
from coatcheck.domain.service_definition import endpoint_key, engine_name
from coatcheck.domain.states import HELD, State

BATCHES_SERVICE: Final = "batches"
"""The service that ingests lists of tasks and writes exports."""
INGEST_ENDPOINT: Final = engine_name(BATCHES_SERVICE, 1, endpoint_key("post", "/ingest"))
EXPORT_ENDPOINT: Final = engine_name(BATCHES_SERVICE, 1, endpoint_key("post", "/export"))
"""The engine's endpoints of the surface's own work."""

PartSource = Literal["inline", "upload", "pieces", "rerun"]


class BatchState(StrEnum):
    """Where a batch stands. ``terminal`` says whether that is the end of its current run."""

    INGESTING = "ingesting"
    OPEN = "open"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED_INGEST = "failed_ingest"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether it stays so. After a failed ingest: until a redrive, a rerun or a DELETE."""
        return self in (BatchState.COMPLETED, BatchState.CANCELLED, BatchState.FAILED_INGEST)


class TaskStatus(StrEnum):
    """What the surface calls the states of its tasks."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


def task_status(state: State) -> TaskStatus:
    """A task's status, by its job's state."""
    if state in HELD:
        return TaskStatus.RUNNING
    return _ENDS.get(state, TaskStatus.PENDING)


_ENDS: Final = {
    State.COMPLETED: TaskStatus.SUCCEEDED,
    State.FAILED: TaskStatus.FAILED,
    State.CANCELLED: TaskStatus.CANCELLED,
}


def task_id(run: UUID, index: int) -> bytes:
    """A task's id: the first 128 bits of SHA-256 of ``{run_id}:{index}``; shown in hex."""
    return hashlib.sha256(f"{to_text(run)}:{index}".encode()).digest()[:16]


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """A run's tasks by status, as of one moment. ``total`` is how many were written so far."""

    total: int
    running: int
    succeeded: int
    failed: int
    cancelled: int

    @property
    def pending(self) -> int:
        return self.total - self.running - self.succeeded - self.failed - self.cancelled

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
    """A run as a reader sees it."""

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
    """Its first so many tasks have their positions in the batch as their numbers."""
    replaced_succeeded: int
    replaced_failed: int
    replaced_cancelled: int
    """Its tasks that a later run has taken in again, by how they ended here."""
    repeats_all: bool
    """Whether it took tasks of the batch as a whole, and not of its parent only."""

    @property
    def id(self) -> str:
        return to_text(self.uuid)

    @property
    def latest(self) -> TaskCounts:
        """Those of its tasks that no later run has taken in again."""
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
    """A batch as a reader sees it, with its runs, the oldest first; the last is the current one.

    A list of batches has the current run of each only, and the sum of the ``earlier`` ones.
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
    """The latest tasks of runs that are not among ``runs``."""

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
    def whole(self) -> TaskCounts:
        """The batch over all runs: each of its tasks once, by its latest result."""
        return sum((run.latest for run in self.runs), self.earlier)


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch about to be created: everything but its tasks."""

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
    """The registered secrets that its tasks are sent with."""


@dataclass(frozen=True, slots=True)
class NewPart:
    """A source of tasks about to be taken in."""

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
    """One task about to be written. ``payload`` is whole; ``key`` is what its rate counts by."""

    payload: bytes
    custom_id: str | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """Who holds an idempotency key, and what tells one use of it from another."""

    uuid: UUID
    fingerprint: bytes | None


@dataclass(frozen=True, slots=True)
class Created:
    """What handing in came to: a batch, or a part or run of one. ``created`` is false where its key
    was known; ``mismatch`` says that it came with something else then."""

    uuid: UUID
    created: bool
    mismatch: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """Which of a run's tasks to take: those of any of these statuses and, if given, error codes.

    Without statuses all of them.
    """

    statuses: Sequence[TaskStatus] = ()
    error_codes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RerunSource:
    """What a rerun takes tasks from: one run, or the batch as a whole, which is each of its tasks
    with its latest result. Neither: of the whole batch all of them; those that a selection chooses,
    of the current run."""

    run: UUID | None = None
    all_runs: bool = False


UNNAMED_SOURCE: Final = RerunSource()


@dataclass(frozen=True, slots=True)
class IngestOrder:
    """All that whoever takes a part in has to know, as of one moment."""

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
    """Whether every part before it was taken in."""
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
    tells_failures: bool
    request_id: str | None
    cancelled: bool
    """Whether the run was cancelled, or the batch deleted: nothing is to be taken in any more."""
    source_etag: str | None
    backlog_max: int | None
    """How many jobs the organisation may have waiting; None if nothing limits them."""
    run_number: int
    source_before: int | None
    """Of a rerun of the whole batch: it takes the latest tasks of runs numbered below this."""
    waits_for_a_run: bool
    """Whether a rerun is not to be taken in yet: a run before it has not ended."""


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task as a reader sees it."""

    uuid: UUID
    index: int
    custom_id: str | None
    state: State
    attempts: int
    error_code: str | None
    error_message: str | None
    result: bytes | None
    input: bytes | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    run: UUID
    result_bytes: int | None
    """Its length, also where the result itself is left out."""
    position: int
    """Its number in the batch: the same in every run that has it."""

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
    """Where a task is: its run, and its number there."""

    run: UUID
    number: int

    @property
    def uuid(self) -> UUID:
        return UUID(bytes=task_id(self.run, self.number))


class MirrorRun(NamedTuple):
    """What is to be known of a run to find the latest task of a position: that the first
    ``mirrored`` of its ``tasks`` have their positions as their numbers."""

    number: int
    uuid: UUID
    mirrored: int
    tasks: int


def mirrored_after(runs: Sequence[MirrorRun], number: int) -> int:
    """Positions below this are those of a task of a run that is numbered above ``number``."""
    return max((run.mirrored for run in runs if run.number > number), default=0)


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no task, and why."""

    line: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class FailedPart:
    """A part that could not be taken in, and waits for a redrive, a rerun or a DELETE."""

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
    """An export as a reader sees it. Its blob is there once it has completed."""

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
    """Whether it is of the batch as a whole, as of ``run`` and those before it."""
