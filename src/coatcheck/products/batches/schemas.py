"""What the batches surface's answers look like: the words of its contract."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

Status = Literal["ingesting", "open", "running", "completed", "failed_ingest", "cancelled"]
TaskWord = Literal["pending", "running", "succeeded", "failed", "cancelled"]


class TaskCounts(msgspec.Struct, frozen=True):
    """Tasks by status. ``total`` is how many were taken in so far; they add up to it."""

    total: int
    pending: int
    running: int
    succeeded: int
    failed: int
    cancelled: int


class Ingest(msgspec.Struct, frozen=True):
    """How far the lists were taken in. Lines that are no task are counted, and listed by number.

    ``error`` says why a list could not be taken in: then it is a dead letter, see ``/v1/dlq``.
    """

    lines: int
    bad_lines: int
    error: TaskError | None


class TaskError(msgspec.Struct, frozen=True):
    """Why something failed. ``code`` is stable and machine-readable."""

    code: str
    message: str


class RunFilter(msgspec.Struct, frozen=True):
    """What a rerun took of the run before: tasks of these statuses and error codes."""

    status: list[str] = []
    error_code: list[str] = []


class BatchRun(msgspec.Struct, frozen=True):
    """One run of a job's tasks. A rerun is a run more, which names its parent: the run that it took
    tasks of. With ``repeats_all`` it took them of the job as a whole, as of its parent."""

    id: str
    number: int
    parent_run_id: str | None
    filter: RunFilter | None
    repeats_all: bool
    status: Status
    counts: TaskCounts
    ingest: Ingest
    created_at: datetime
    completed_at: datetime | None


class BatchRate(msgspec.Struct, frozen=True):
    """How many tasks are begun in a second: of the run, and of those that share a key."""

    per_second: float | None
    key: str | None
    key_per_second: float | None


class BatchUrls(msgspec.Struct, frozen=True):
    """Where all that can be done with a job is done, as paths of this server."""

    poll: str
    events: str
    cancel: str
    close: str
    tasks: str
    bad_lines: str
    rerun: str
    exports: str


class BatchJob(msgspec.Struct, frozen=True):
    """A job. Counts and ingest are those of its current run, the last of ``runs``; ``job_counts``
    those of the job as a whole: each task once, by its latest result over all runs.

    ``completed`` means that every task has ended, whatever its end. ``progress`` goes from 0 to 1.
    In a list of jobs, ``runs`` has the current one only.
    """

    id: str
    type: Literal["closed", "open"]
    status: Status
    service: str
    endpoint: str
    lane: str
    concurrency: int | None
    rate: BatchRate | None
    webhook_events: list[str]
    metadata: msgspec.Raw
    counts: TaskCounts
    job_counts: TaskCounts
    progress: float
    ingest: Ingest
    runs: list[BatchRun]
    cancel_requested: bool
    created_at: datetime
    completed_at: datetime | None
    expires_at: datetime | None
    terminal: bool
    urls: BatchUrls


class BatchProgress(msgspec.Struct, frozen=True):
    """How far a job is: what an event ``progress`` says."""

    run_id: str
    status: Status
    counts: TaskCounts
    job_counts: TaskCounts
    progress: float
    ingest: Ingest


class BatchPage(msgspec.Struct, frozen=True):
    """Jobs, newest first. ``next`` is the ``cursor`` of the page after this one."""

    items: list[BatchJob]
    next: str | None


class TaskUrls(msgspec.Struct, frozen=True):
    """Where a task is read, its result alone, its job, and its files."""

    poll: str
    result: str
    job: str
    artifacts: str


class TaskArtifact(msgspec.Struct, frozen=True):
    """A file that a task has left. ``url`` is good for anybody until ``expires_at``."""

    name: str
    media_type: str
    bytes: int
    sha256: str
    url: str
    expires_at: datetime


class BatchTask(msgspec.Struct, frozen=True):
    """A task. ``result`` is there once it has succeeded, ``error`` if its last attempt failed.

    ``index`` is its number in its run, ``job_index`` its number in the job, which it keeps in every
    run that runs it again. A page has no room for a long result: ``result_url`` says where it is.
    ``expires_at`` is its job's: a task goes with its job. Null while the job goes on.
    """

    id: str
    index: int
    job_index: int
    custom_id: str | None
    run_id: str
    status: TaskWord
    attempts: int
    result: msgspec.Raw
    result_url: str | None
    error: TaskError | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    terminal: bool
    urls: TaskUrls


class WholeTask(BatchTask, frozen=True, kw_only=True):
    """A task with its input, and the files that it has left."""

    input: msgspec.Raw
    artifacts: list[TaskArtifact]


class TaskPage(msgspec.Struct, frozen=True):
    """Tasks of one run, or of all. ``next`` is the ``cursor`` of the page after this one."""

    items: list[BatchTask]
    next: str | None


class FailureCount(msgspec.Struct, frozen=True):
    """How many tasks failed with one code."""

    code: str
    count: int


class TaskFailures(msgspec.Struct, frozen=True):
    """The codes that tasks of a run failed with, the commonest first. With ``all_runs`` those of
    the job as a whole, by each task's latest result, as of this run.

    ``counted`` is how many failed tasks were looked at: all of them, or the first of very many.
    """

    run_id: str
    all_runs: bool
    counted: int
    items: list[FailureCount]


class BadLineItem(msgspec.Struct, frozen=True):
    """A line that is no task, by its number in its list, counted from 1."""

    line: int
    code: str
    message: str


class BadLinePage(msgspec.Struct, frozen=True):
    """Invalid lines. The first thousand of each list are kept."""

    items: list[BadLineItem]
    next: str | None


class Upload(msgspec.Struct, frozen=True):
    """Where to put a list: by this method, to this URL, with these headers, until then."""

    upload_id: str
    url: str
    method: str
    headers: dict[str, str]
    expires_at: datetime


class ExportUrls(msgspec.Struct, frozen=True):
    """Where an export is read, and its job."""

    poll: str
    job: str


class Export(msgspec.Struct, frozen=True):
    """An export. Once it has completed, ``url`` is where its zip is, good for anybody. With
    ``all_runs`` it is of the job as a whole, as of this run."""

    id: str
    job_id: str
    run_id: str
    all_runs: bool
    status: Literal["pending", "completed", "failed"]
    url: str | None
    expires_at: datetime | None
    bytes: int | None
    sha256: str | None
    tasks: int
    error: TaskError | None
    created_at: datetime
    completed_at: datetime | None
    terminal: bool
    urls: ExportUrls


class ExportPage(msgspec.Struct, frozen=True):
    """The exports of a job that are kept, newest first."""

    items: list[Export]


class DeadLetterUrls(msgspec.Struct, frozen=True):
    """Where the list is tried again, and where its job is."""

    redrive: str
    job: str


class DeadLetterItem(msgspec.Struct, frozen=True):
    """A list that could not be taken in, and why. ``lines`` and ``tasks`` are what was."""

    id: str
    job_id: str
    run_id: str
    source: str
    error: TaskError
    lines: int
    tasks: int
    redrives: int
    created_at: datetime
    failed_at: datetime
    urls: DeadLetterUrls


class DeadLetterPage(msgspec.Struct, frozen=True):
    """Lists that could not be taken in, newest first."""

    items: list[DeadLetterItem]
    next: str | None


NULL: msgspec.Raw = msgspec.Raw(b"null")


def raw(json: bytes | None) -> Any:
    """JSON as it is stored; null, if there is none."""
    return NULL if json is None else msgspec.Raw(json)
