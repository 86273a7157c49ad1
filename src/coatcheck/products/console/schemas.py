"""What the console shows: jobs, what happened to them, and what they said."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

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


class OrgJobError(msgspec.Struct, frozen=True):
    """Why the job failed, or its last attempt did."""

    code: str
    message: str


class JobProgress(msgspec.Struct, frozen=True):
    """How far a job says it is, from 0 to 1, and in words."""

    fraction: float
    note: str | None


class OrgJobUrls(msgspec.Struct, frozen=True):
    """Where all that concerns a job is. ``surface`` is the job on the surface that it came by;
    ``retry`` and ``input`` are there while it can be retried, and read."""

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
    """A job, in the words of the engine. ``terminal`` says that it has ended.

    ``endpoint`` is what people call it, ``engine_endpoint`` what workers do. ``attempts`` counts
    failures, crashes, and the attempt that completed or is under way. ``retry_of`` is the job that
    this one is a retry of, ``retried_as`` the newest retry of it.
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
    """A job with its result. One of more than 64 KiB is left out (``result_truncated``): it is
    found where the job's own surface shows it."""

    result: msgspec.Raw
    result_truncated: bool


class OrgJobPageBody(msgspec.Struct, frozen=True):
    """Jobs, newest first, without their results. ``next`` is the ``cursor`` of the page after this
    one; a page may be short, or empty, and still have one."""

    items: list[OrgJobItem]
    next: str | None


class TimelineItem(msgspec.Struct, frozen=True):
    """Something that happened to a job. ``state`` is where it led, ``attempt`` which attempt it was
    of."""

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
    """A log line, an alert, or what became of an attempt that did not complete.

    ``level`` is there for log lines. ``data`` holds what else there is.
    """

    seq: int
    at: datetime
    kind: Literal["log", "alert", "attempt"]
    level: str | None
    message: str
    data: dict[str, Any] | None


class LogPage(msgspec.Struct, frozen=True):
    """What a job said, in order. ``next`` is what to ask for ``after`` to go on."""

    items: list[LogItem]
    next: int | None


class BulkFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs are meant: those of ``GET /jobs`` with the same fields."""

    state: Annotated[str, Meta(max_length=200)] | None = None
    lane: Lane | None = None
    surface: str | None = None
    service: Annotated[str, Meta(max_length=255)] | None = None
    endpoint: Annotated[str, Meta(max_length=255)] | None = None
    error_code: Annotated[str, Meta(max_length=255)] | None = None
    created_after: Annotated[datetime, Meta(tz=True)] | None = None
    created_before: Annotated[datetime, Meta(tz=True)] | None = None


class BulkOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be done with which jobs: those of ``ids``, or so many that a ``filter`` finds, the
    newest first."""

    action: Literal["cancel", "retry"]
    ids: Annotated[list[str], Meta(min_length=1, max_length=BULK_IDS_MAX)] | None = None
    filter: BulkFilter | None = None
    limit: Annotated[int, Meta(ge=1, le=BULK_ROWS_MAX)] = BULK_ROWS


def bulk_order(surfaces: Sequence[str]) -> type[BulkOrder]:
    """``BulkOrder`` with a ``filter`` that takes these surfaces and no others: which there are is
    known when the products are."""
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
    """What came of one job. ``new_id`` is the new job of a retry; ``code`` and ``message`` say why
    nothing was done."""

    id: str
    ok: bool
    new_id: str | None
    code: str | None
    message: str | None


class BulkAnswer(msgspec.Struct, frozen=True):
    """What came of each job. ``more``: the filter may find others, if it is asked again."""

    items: list[BulkItem]
    more: bool


class OperatedOrg(msgspec.Struct, frozen=True):
    """An organisation. ``subscription`` is Stripe's word for the state of its plan."""

    org_id: str
    name: str
    subscription: str
    created_at: datetime


class ForgottenServices(msgspec.Struct, frozen=True):
    """The endpoints that were taken out of the catalogue, and those that stay because live workers
    publish them."""

    forgotten: list[str]
    served: list[str]


class OperatedOrgs(msgspec.Struct, frozen=True):
    """Every organisation that has a row, by its id."""

    items: list[OperatedOrg]
