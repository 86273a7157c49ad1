"""The bodies of the console API: jobs, timelines, logs and bulk requests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from coatcheck.domain.job import JobFailure
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State

BULK_IDS_MAX = 200
BULK_ROWS_MAX = 1_000
BULK_ROWS = 100

TimelineKind = Literal[
    "created",
    "scheduled",
    "queued",
    "claimed",
    "started",
    "attempt_failed",
    "crashed",
    "interrupted",
    "target_unreachable",
    "postponed",
    "retry_scheduled",
    "remote_spawned",
    "cancel_requested",
    "finished",
]


class OrgJobError(JobFailure, frozen=True):
    """Why the job, or its last attempt, failed. ``cause`` is the attempt's code."""


class JobProgress(msgspec.Struct, frozen=True):
    """A job's reported progress: a fraction from 0 to 1, and a note."""

    fraction: float
    note: str | None


class OrgJobUrls(msgspec.Struct, frozen=True):
    """The URLs of a job. ``surface`` is the job in its product's own API; ``retry`` and ``input``
    are null if the job cannot be retried, or its input not be read."""

    self: str
    surface: str | None
    events: str
    log: str
    timeline: str
    explain: str
    cancel: str
    retry: str | None
    input: str | None
    artifacts: str
    receipt: str | None
    batch: str | None


class OrgJobItem(msgspec.Struct, frozen=True):
    """A job with the engine's states. ``terminal`` says that it has ended.

    ``endpoint`` is the name for people, ``engine_endpoint`` the name that workers use. ``attempts``
    counts failures, crashes, and the attempt that completed or is running. ``retry_of`` is the job
    that this one retries, ``retried_as`` the newest retry of this one.
    """

    id: str
    org_id: str
    surface: str
    service: str
    endpoint: str
    engine_endpoint: str
    lane: Lane
    state: State
    terminal: bool
    owner: str
    batch_id: str | None
    task_id: str | None
    attempts: int
    failures: int
    failures_max: int
    crashes: int
    interruptions: int
    unreachables: int
    progress: JobProgress | None
    error: OrgJobError | None
    idempotency_key: str | None
    request_id: str | None
    trace_id: str | None
    execution_id: str | None
    created_at: datetime
    run_at: datetime
    dispatched_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    expires_at: datetime | None
    start_deadline: datetime | None
    input_kept: bool
    retry_of: str | None
    retried_as: str | None
    result_bytes: int | None
    urls: OrgJobUrls


class OrgJobBody(OrgJobItem, frozen=True):
    """A job with its result. A result of more than 64 KiB is left out (``result_truncated``): the
    job's own product shows it."""

    result: msgspec.Raw
    result_truncated: bool


class OrgJobPageBody(msgspec.Struct, frozen=True):
    """Jobs, newest first, without their results. ``next`` is the ``cursor`` of the next page; a
    page may be short, or empty, and still have one."""

    items: list[OrgJobItem]
    next: str | None


class TimelineItem(msgspec.Struct, frozen=True):
    """An event in a job's history. ``state`` is the state after it, ``attempt`` the number of its
    attempt."""

    at: datetime
    kind: TimelineKind
    state: State
    attempt: int | None
    code: str | None
    message: str | None


class Timeline(msgspec.Struct, frozen=True):
    """What happened to a job, in order."""

    items: list[TimelineItem]


class LogItem(msgspec.Struct, frozen=True):
    """A log line, an alert, or the outcome of an attempt that did not complete.

    Only log lines have a ``level``. ``data`` has all other fields.
    """

    seq: int
    at: datetime
    kind: Literal["log", "alert", "attempt"]
    level: str | None
    message: str
    data: dict[str, Any] | None


class LogPage(msgspec.Struct, frozen=True):
    """A job's log, in order. ``next`` is the value of ``after`` for the next page."""

    items: list[LogItem]
    next: int | None


class BulkFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A filter of jobs, with the fields of ``GET /jobs``."""

    state: Annotated[str, Meta(max_length=200)] | None = None
    lane: Lane | None = None
    surface: str | None = None
    service: Annotated[str, Meta(max_length=255)] | None = None
    endpoint: Annotated[str, Meta(max_length=255)] | None = None
    error_code: Annotated[str, Meta(max_length=255)] | None = None
    created_after: Annotated[datetime, Meta(tz=True)] | None = None
    created_before: Annotated[datetime, Meta(tz=True)] | None = None


class BulkOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action for many jobs: those of ``ids``, or those that a ``filter`` finds, newest first, up
    to ``limit``."""

    action: Literal["cancel", "retry"]
    ids: Annotated[list[str], Meta(min_length=1, max_length=BULK_IDS_MAX)] | None = None
    filter: BulkFilter | None = None
    limit: Annotated[int, Meta(ge=1, le=BULK_ROWS_MAX)] = BULK_ROWS


def bulk_order(surfaces: Sequence[str]) -> type[BulkOrder]:
    """``BulkOrder`` with a ``filter`` that accepts only these surfaces, which are known only once
    the products are loaded."""
    surface = Literal[tuple(surfaces)] if surfaces else str
    narrowed = msgspec.defstruct(
        "BulkFilter",
        [("surface", surface | None, None)],
        bases=(BulkFilter,),
        namespace={"__doc__": BulkFilter.__doc__},
        frozen=True,
        forbid_unknown_fields=True,
    )
    order = msgspec.defstruct(
        "BulkOrder",
        [("filter", narrowed | None, None)],
        bases=(BulkOrder,),
        namespace={"__doc__": BulkOrder.__doc__},
        frozen=True,
        forbid_unknown_fields=True,
    )
    return cast(type[BulkOrder], order)


class BulkItem(msgspec.Struct, frozen=True):
    """The result for one job. ``new_id`` is the new job of a retry; ``code`` and ``message`` say
    why the action failed."""

    id: str
    ok: bool
    new_id: str | None
    code: str | None
    message: str | None


class BulkAnswer(msgspec.Struct, frozen=True):
    """The result for each job. ``more``: the filter may find further jobs in another request."""

    items: list[BulkItem]
    more: bool


class OperatedOrg(msgspec.Struct, frozen=True):
    """An organisation. ``subscription`` is Stripe's word for the state of its plan."""

    org_id: str
    name: str
    subscription: str
    created_at: datetime


class ForgottenServices(msgspec.Struct, frozen=True):
    """The endpoints that were removed from the catalogue, and those that stay because live workers
    publish them."""

    forgotten: list[str]
    served: list[str]


class OperatedOrgs(msgspec.Struct, frozen=True):
    """Every organisation that has a row, sorted by id."""

    items: list[OperatedOrg]
