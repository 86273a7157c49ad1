"""What callers send: a batch and its options, tasks to add, what to run again."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from coatcheck.domain.endpoint_names import SERVICE_NAME_PATTERN, VERSION_MAX
from coatcheck.domain.errors import FieldIssue, InvalidInput
from coatcheck.domain.lanes import Lane
from coatcheck.domain.patterns import whole
from coatcheck.domain.service_definition import RETRIES_MAX, URL_CHARACTERS_MAX
from coatcheck.products.batches.model import TaskStatus

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
    """How fast tasks are begun: of the whole run, and of those that share a key.

    ``key`` names the field of a task that is the key, with dots between the names of nested ones;
    of a URL its host is. Without ``key_per_second`` it is ``per_second`` that counts for each key.
    """

    per_second: _PerSecond | None = None
    key: Annotated[str, Meta(min_length=1, max_length=RATE_KEY_CHARACTERS_MAX)] | None = None
    key_per_second: _PerSecond | None = None


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """A list that was staged: see ``POST /v1/uploads``."""

    upload_id: _UploadId


class NewJob(Struct, frozen=True, forbid_unknown_fields=True):
    """A job to be run. Its tasks are in ``tasks``, in a staged ``source``, or in neither for an
    open job. ``endpoint`` is the path or the key of an endpoint of the service."""

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
        """The metadata as it was written."""
        written = b"" if isinstance(self.metadata, UnsetType) else bytes(self.metadata)
        return None if written in (b"", b"null") else written


class MoreTasks(Struct, frozen=True, forbid_unknown_fields=True):
    """Tasks to add to an open job: ``tasks``, or a staged ``source``."""

    tasks: _Tasks | None = None
    source: Source | None = None


class Filter(Struct, frozen=True, forbid_unknown_fields=True):
    """Which tasks to run again: of any of these statuses, and of any of these error codes."""

    status: EndedStatus | Annotated[list[EndedStatus], Meta(min_length=1)] | None = None
    error_code: _ErrorCode | _ErrorCodes | None = None

    @property
    def statuses(self) -> list[TaskStatus]:
        given = [self.status] if isinstance(self.status, str) else self.status or []
        return [TaskStatus(status) for status in given]

    @property
    def error_codes(self) -> list[str]:
        given = self.error_code
        return [given] if isinstance(given, str) else given or []


class Rerun(Struct, frozen=True, forbid_unknown_fields=True):
    """A run again, of tasks of ``run``: the id of a run, or ``all`` for the job as a whole, which
    is each task with its latest result. Without it, of the whole job; with a filter, of the current
    run."""

    filter: Filter | None = None
    run: _Run | None = None


class ExportOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """What to export: a run, or ``all`` for the job as a whole, which is each task with its latest
    result. Without it the current run."""

    run: _Run | None = None


def check_options(job: NewJob) -> None:
    """Raises InvalidInput for options that do not go together."""
    issues: list[FieldIssue] = []
    rate = job.rate
    if rate is not None:
        if rate.key_per_second is not None and rate.key is None:
            issues.append(FieldIssue("rate.key", "is needed with key_per_second"))
        if rate.per_second is None and rate.key_per_second is None:
            issues.append(FieldIssue("rate", "needs per_second or key_per_second"))
    if job.webhook_events is not None and job.webhook_url is None:
        issues.append(FieldIssue("webhook_events", "needs a webhook_url to tell"))
    metadata = job.metadata_json
    if metadata is not None:
        if not metadata.startswith(b"{"):
            issues.append(FieldIssue("metadata", "must be an object"))
        elif len(metadata) > METADATA_BYTES_MAX:
            issues.append(FieldIssue("metadata", f"must be at most {METADATA_BYTES_MAX} bytes"))
    if issues:
        raise InvalidInput(issues)


def check_one_source(tasks: object, source: object, *, is_needed: bool) -> None:
    """Raises InvalidInput unless there is one source of tasks, or none where none is needed."""
    if tasks is not None and source is not None:
        raise InvalidInput([FieldIssue("source", "cannot come together with tasks")])
    if tasks is None and source is None and is_needed:
        raise InvalidInput([FieldIssue("tasks", "are needed, or a source of them")])
