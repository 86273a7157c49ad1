"""Request and response bodies of the batches API."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from coatcheck.domain.errors import FieldIssue, InvalidInput
from coatcheck.domain.job import JobFailure
from coatcheck.domain.lanes import Lane
from coatcheck.domain.patterns import whole
from coatcheck.domain.service_definition import (
    RETRIES_MAX,
    SERVICE_NAME_PATTERN,
    URL_CHARACTERS_MAX,
    VERSION_MAX,
)
from coatcheck.products.batches.model import RunFilter

Status = Literal["ingesting", "open", "running", "completed", "failed_ingest", "cancelled"]
TaskStatusName = Literal["pending", "running", "succeeded", "failed", "cancelled"]


class TaskCountsBody(msgspec.Struct, frozen=True):
    """Tasks by status. ``total`` is how many were ingested so far; the others add up to it."""

    total: int
    pending: int
    running: int
    succeeded: int
    failed: int
    cancelled: int


class IngestBody(msgspec.Struct, frozen=True):
    """How many lines of the lists were ingested, and how many of them are invalid.

    ``error`` says why the ingest of a list failed. The list is then a dead letter, see
    ``/v1/dlq``.
    """

    lines: int
    bad_lines: int
    error: TaskError | None


class TaskError(JobFailure, frozen=True):
    """Why something failed. ``code`` is stable and machine-readable, and so is ``cause``."""


class BatchRunBody(msgspec.Struct, frozen=True):
    """One run of a job's tasks. A rerun adds a run, which names its parent: the run that its tasks
    come from. With ``repeats_all`` they come from the job as a whole, as of its parent."""

    id: str
    number: int
    parent_run_id: str | None
    filter: RunFilter | None
    repeats_all: bool
    status: Status
    counts: TaskCountsBody
    ingest: IngestBody
    created_at: datetime
    completed_at: datetime | None


class BatchRate(msgspec.Struct, frozen=True):
    """How many tasks start per second: of the run, and of those that share a key."""

    per_second: float | None
    key: str | None
    key_per_second: float | None


class BatchUrls(msgspec.Struct, frozen=True):
    """The URLs of a job's operations, as paths of this server."""

    poll: str
    events: str
    cancel: str
    close: str
    tasks: str
    bad_lines: str
    rerun: str
    exports: str


class BatchJob(msgspec.Struct, frozen=True):
    """A job. ``counts`` and ``ingest`` are those of its current run, the last of ``runs``.
    ``job_counts`` are those of the job as a whole: each task once, by its latest result.

    ``completed`` means that every task has ended, also if some failed. ``progress`` goes from 0 to
    1. In a list of jobs, ``runs`` has only the current one.
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
    counts: TaskCountsBody
    job_counts: TaskCountsBody
    progress: float
    ingest: IngestBody
    runs: list[BatchRunBody]
    cancel_requested: bool
    created_at: datetime
    completed_at: datetime | None
    expires_at: datetime | None
    terminal: bool
    urls: BatchUrls


class BatchProgress(msgspec.Struct, frozen=True):
    """The data of a ``progress`` event."""

    run_id: str
    status: Status
    counts: TaskCountsBody
    job_counts: TaskCountsBody
    progress: float
    ingest: IngestBody


class BatchPage(msgspec.Struct, frozen=True):
    """Jobs, newest first. ``next`` is the ``cursor`` of the next page."""

    items: list[BatchJob]
    next: str | None


class TaskUrls(msgspec.Struct, frozen=True):
    """The URLs of a task, its result, its job and its artifacts."""

    poll: str
    result: str
    job: str
    artifacts: str


class TaskArtifact(msgspec.Struct, frozen=True):
    """A file of a task. Anybody can use ``url`` until ``expires_at``."""

    name: str
    media_type: str
    bytes: int
    sha256: str
    url: str
    expires_at: datetime


class BatchTaskBody(msgspec.Struct, frozen=True):
    """A task. ``result`` is set when it has succeeded, ``error`` if its last attempt failed.

    ``index`` is its number in its run. ``job_index`` is its number in the job, which stays the same
    in every rerun. A page leaves long results out; ``result_url`` is then the result's URL.
    ``expires_at`` is when the job, and the task with it, is deleted; null until the job ends.
    """

    id: str
    index: int
    job_index: int
    custom_id: str | None
    run_id: str
    status: TaskStatusName
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


class WholeTask(BatchTaskBody, frozen=True, kw_only=True):
    """A task with its input and its artifacts."""

    input: msgspec.Raw
    artifacts: list[TaskArtifact]


class TaskPage(msgspec.Struct, frozen=True):
    """Tasks of one run, or of the whole job. ``next`` is the ``cursor`` of the next page."""

    items: list[BatchTaskBody]
    next: str | None


class BatchFailureCount(msgspec.Struct, frozen=True):
    """How many tasks failed with one code."""

    code: str
    count: int


class TaskFailures(msgspec.Struct, frozen=True):
    """The error codes of a run's failed tasks, most frequent first. With ``all_runs`` those of the
    job as a whole, by each task's latest result, as of this run.

    ``counted`` is how many failed tasks were counted: all, or only the first if there are very
    many.
    """

    run_id: str
    all_runs: bool
    counted: int
    items: list[BatchFailureCount]


class BadLineItem(msgspec.Struct, frozen=True):
    """An invalid line, by its number in its list, counted from 1."""

    line: int
    code: str
    message: str


class BadLinePage(msgspec.Struct, frozen=True):
    """Invalid lines. The first 1,000 of each list are stored."""

    items: list[BadLineItem]
    next: str | None


class Upload(msgspec.Struct, frozen=True):
    """How to upload a list: the method, URL and headers to use until ``expires_at``."""

    upload_id: str
    url: str
    method: str
    headers: dict[str, str]
    expires_at: datetime


class ExportUrls(msgspec.Struct, frozen=True):
    """The URLs of an export and of its job."""

    poll: str
    job: str


class ExportBody(msgspec.Struct, frozen=True):
    """An export. When it has completed, ``url`` is the URL of its zip, which anybody can use. With
    ``all_runs`` it has the tasks of the job as a whole, as of this run."""

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
    """The exports of a job that have not expired, newest first."""

    items: list[ExportBody]


class DeadLetterUrls(msgspec.Struct, frozen=True):
    """The URL that retries the ingest, and the job's."""

    redrive: str
    job: str


class DeadLetterItem(msgspec.Struct, frozen=True):
    """A list whose ingest failed, with the error. ``lines`` and ``tasks`` were ingested before."""

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
    """Lists whose ingest failed, newest first."""

    items: list[DeadLetterItem]
    next: str | None


NULL: msgspec.Raw = msgspec.Raw(b"null")


def raw(json: bytes | None) -> Any:
    """Stored JSON without decoding it; null for None."""
    return NULL if json is None else msgspec.Raw(json)


ENDPOINT_CHARACTERS_MAX: Final = 512
CONCURRENCY_MAX: Final = 100_000
RATE_MIN: Final = 0.001
RATE_MAX: Final = 100_000
RATE_KEY_CHARACTERS_MAX: Final = 255
METADATA_BYTES_MAX: Final = 16 * 1024
KEEP_SECONDS_MAX: Final = 10 * 365 * 86_400
ERROR_CODES_MAX: Final = 100
ERROR_CODE_CHARACTERS_MAX: Final = 255

Type = Literal["closed", "open"]
WebhookEvent = Literal["completed", "task.failed", "tasks.succeeded"]
EndedStatus = Literal["succeeded", "failed", "cancelled"]

_PerSecond = Annotated[float, Meta(ge=RATE_MIN, le=RATE_MAX)]
_ErrorCode = Annotated[str, Meta(min_length=1, max_length=ERROR_CODE_CHARACTERS_MAX)]
_ErrorCodes = Annotated[list[_ErrorCode], Meta(min_length=1, max_length=ERROR_CODES_MAX)]
_UploadId = Annotated[str, Meta(min_length=26, max_length=26)]
_Run = Annotated[str, Meta(pattern=whole("[0-9A-Za-z]{26}|all"))]
_Object = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object"})]
_Tasks = Annotated[list[msgspec.Raw], Meta(min_length=1)]


class Rate(Struct, frozen=True, forbid_unknown_fields=True):
    """How many tasks start per second: of the whole run, and of those that share a key.

    ``key`` names the field of a task that is the key, with dots between nested names. If the field
    is a URL, its host is the key. Without ``key_per_second``, ``per_second`` applies to each key.
    """

    per_second: _PerSecond | None = None
    key: Annotated[str, Meta(min_length=1, max_length=RATE_KEY_CHARACTERS_MAX)] | None = None
    key_per_second: _PerSecond | None = None


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """An uploaded list: see ``POST /v1/uploads``."""

    upload_id: _UploadId


class NewBatchBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A job to submit. Its tasks are in ``tasks`` or in an uploaded ``source``; an open job may
    have neither. ``endpoint`` is the path or the key of an endpoint of the service."""

    service: Annotated[str, Meta(pattern=whole(SERVICE_NAME_PATTERN))]
    endpoint: Annotated[str, Meta(min_length=1, max_length=ENDPOINT_CHARACTERS_MAX)]
    version: Annotated[int, Meta(ge=1, le=VERSION_MAX)] | None = None
    tasks: _Tasks | None = None
    source: Source | None = None
    type: Type = "closed"
    is_async: bool = msgspec.field(default=False, name="async")
    lane: Lane = Lane.BULK
    concurrency: Annotated[int, Meta(ge=1, le=CONCURRENCY_MAX)] | None = None
    rate: Rate | None = None
    webhook_url: Annotated[str, Meta(min_length=1, max_length=URL_CHARACTERS_MAX)] | None = None
    webhook_events: list[WebhookEvent] | None = None
    metadata: _Object | UnsetType = UNSET
    keep_seconds: Annotated[int, Meta(ge=0, le=KEEP_SECONDS_MAX)] | None = None
    retries: Annotated[int, Meta(ge=0, le=RETRIES_MAX)] | None = None

    @property
    def metadata_json(self) -> bytes | None:
        """The metadata as the caller wrote it."""
        written = b"" if isinstance(self.metadata, UnsetType) else bytes(self.metadata)
        return None if written in (b"", b"null") else written


class MoreTasks(Struct, frozen=True, forbid_unknown_fields=True):
    """Tasks to add to an open job: ``tasks``, or an uploaded ``source``."""

    tasks: _Tasks | None = None
    source: Source | None = None


class Filter(Struct, frozen=True, forbid_unknown_fields=True):
    """Which tasks to rerun: those with any of these statuses and any of these error codes."""

    status: EndedStatus | Annotated[list[EndedStatus], Meta(min_length=1)] | None = None
    error_code: _ErrorCode | _ErrorCodes | None = None

    def chosen(self) -> RunFilter:
        status, code = self.status, self.error_code
        return RunFilter(
            [status] if isinstance(status, str) else [*(status or ())],
            [code] if isinstance(code, str) else [*(code or ())],
        )


class Rerun(Struct, frozen=True, forbid_unknown_fields=True):
    """Which tasks to rerun. ``run`` is the id of a run, or ``all`` for the job as a whole, which is
    each task with its latest result. The default is the whole job; with a filter, the current
    run."""

    filter: Filter | None = None
    run: _Run | None = None


class ExportRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What to export: a run, or ``all`` for the job as a whole, which is each task with its latest
    result. The default is the current run."""

    run: _Run | None = None


def check_options(job: NewBatchBody) -> None:
    """Raise InvalidInput for options that exclude or require each other."""
    issues: list[FieldIssue] = []
    rate = job.rate
    if rate is not None:
        if rate.key_per_second is not None and rate.key is None:
            issues.append(FieldIssue("rate.key", "is required with key_per_second"))
        if rate.per_second is None and rate.key_per_second is None:
            issues.append(FieldIssue("rate", "needs per_second or key_per_second"))
    if job.webhook_events is not None and job.webhook_url is None:
        issues.append(FieldIssue("webhook_events", "needs a webhook_url"))
    metadata = job.metadata_json
    if metadata is not None:
        if not metadata.startswith(b"{"):
            issues.append(FieldIssue("metadata", "must be an object"))
        elif len(metadata) > METADATA_BYTES_MAX:
            issues.append(FieldIssue("metadata", f"must be at most {METADATA_BYTES_MAX} bytes"))
    if issues:
        raise InvalidInput(issues)


def check_one_source(tasks: object, source: object, *, is_needed: bool) -> None:
    """Raise InvalidInput if there are two sources of tasks, or none although one is needed."""
    if tasks is not None and source is not None:
        raise InvalidInput([FieldIssue("source", "cannot be combined with tasks")])
    if tasks is None and source is None and is_needed:
        raise InvalidInput([FieldIssue("tasks", "are required, or a source")])
