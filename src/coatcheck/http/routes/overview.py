"""The overview of an organisation and, for operators, of the deployment: rates, queues, workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Final

import msgspec

from coatcheck.core import Engine
from coatcheck.core.overview import (
    SPAN_MINUTES_MAX,
    SPAN_MINUTES_MIN,
    LaneState,
    OverviewView,
    QueueState,
)
from coatcheck.core.queries.roll_ups import Interval
from coatcheck.domain.durations import quantile
from coatcheck.domain.ids import run_label
from coatcheck.domain.tenants import Scope
from coatcheck.http.parameters import read_whole_number
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import Parameter, ResponseSpec, Route
from coatcheck.telemetry.job_stats import EVERYBODY

_SPAN_MINUTES: Final = 60
_DIGITS: Final = 6

Seconds = Annotated[float, msgspec.Meta(ge=0)] | None


class OverviewPointBody(msgspec.Struct, frozen=True):
    """Statistics of the ``bucket_seconds`` from ``at`` on.

    ``started`` and ``retried`` count attempts, the others count jobs. ``start_*`` is how long jobs
    had been due when they started, ``run_*`` how long attempts ran; null if there were none.
    """

    at: datetime
    submitted: int
    started: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    rescued: int
    start_p50: Seconds
    start_p99: Seconds
    run_p50: Seconds
    run_p99: Seconds


class OverviewLane(msgspec.Struct, frozen=True):
    """The jobs of a lane that have not ended. Unless ``exact``, ``queued`` is a lower bound."""

    lane: str
    staged: int
    queued: int
    retrying: int
    held: int
    oldest_queued_seconds: Seconds
    exact: bool


class OverviewFlow(msgspec.Struct, frozen=True):
    """The queue of one queue key. Unless ``exact``, ``queued`` is a lower bound."""

    org_id: str
    flow: str
    label: str
    endpoint: str
    lane: str
    queued: int
    held: int
    exact: bool


class OverviewFailure(msgspec.Struct, frozen=True):
    """The number of jobs that failed with an error code."""

    code: str
    count: int


class OverviewWorker(msgspec.Struct, frozen=True):
    """A worker process. ``slots`` is how many jobs it runs at a time, for each of ``lanes``."""

    boot: int
    name: str
    version: str
    alive: bool
    started_at: datetime
    last_seen_at: datetime
    lanes: Sequence[str]
    slots: Sequence[int]
    endpoints: Sequence[str]
    held: int


class OverviewBody(msgspec.Struct, frozen=True):
    """The overview of an organisation; of all organisations, if ``org_id`` is ``*``."""

    org_id: str
    generated_at: datetime
    bucket_seconds: int
    series: list[OverviewPointBody]
    lanes: list[OverviewLane]
    flows: list[OverviewFlow]
    failures: list[OverviewFailure]
    workers_alive: int
    workers: list[OverviewWorker]


def routes(engine: Engine) -> list[Route]:
    """``/api/v1/orgs/{org}/overview`` and ``/api/v1/operator/overview``."""

    async def show(request: Request) -> Response:
        return json_response(await _body(request, request.principal.org))

    async def show_all(request: Request) -> Response:
        return json_response(await _body(request, EVERYBODY))

    async def _body(request: Request, org: str) -> OverviewBody:
        minutes = read_whole_number(
            request.query, "minutes", SPAN_MINUTES_MIN, SPAN_MINUTES_MAX, default=_SPAN_MINUTES
        )
        seen = await engine.overviews.read(org, minutes)
        return _shown(
            seen,
            # The names of queues may reveal something about other users of the organisation.
            with_queues=Scope.ADMIN in request.principal.scopes,
            with_workers=request.principal.is_operator,
        )

    return [
        Route(
            methods=("GET",),
            path="/api/v1/orgs/{org}/overview",
            name="overview",
            summary="Recent rates, durations and failures; jobs that wait and run now.",
            description="These are statistics: the last seconds may be missing, and those of a "
            "process that was killed are lost. Usage is exact. Only admins see `flows`, only "
            "operators see `workers`; for others they are empty.",
            handler=show,
            access=Scope.READ,
            operable=True,
            parameters=(_MINUTES,),
            responses=(ResponseSpec(HTTPStatus.OK, "The overview.", OverviewBody),),
            tag="console",
        ),
        Route(
            methods=("GET",),
            path="/api/v1/operator/overview",
            name="operator_overview",
            summary="The overview of all organisations, with the workers.",
            handler=show_all,
            access=Scope.ADMIN,
            operators_only=True,
            parameters=(_MINUTES,),
            responses=(ResponseSpec(HTTPStatus.OK, "The overview.", OverviewBody),),
            tag="console",
        ),
    ]


_MINUTES: Final = Parameter(
    "minutes",
    "query",
    "The length of the time span. There are at most 120 points: of one or two minutes, a quarter "
    "or half of an hour, or hours.",
    {
        "type": "integer",
        "minimum": SPAN_MINUTES_MIN,
        "maximum": SPAN_MINUTES_MAX,
        "default": _SPAN_MINUTES,
    },
)


def _shown(seen: OverviewView, *, with_queues: bool, with_workers: bool) -> OverviewBody:
    return OverviewBody(
        org_id=seen.org,
        generated_at=seen.generated_at,
        bucket_seconds=seen.interval_seconds,
        series=[_point(each) for each in seen.series],
        lanes=[_lane(each) for each in seen.lanes],
        flows=[_queue(each) for each in seen.queues] if with_queues else [],
        failures=[OverviewFailure(code, count) for code, count in seen.failures],
        workers_alive=sum(each.alive for each in seen.workers),
        workers=[OverviewWorker(*each) for each in seen.workers] if with_workers else [],
    )


def _point(interval: Interval) -> OverviewPointBody:
    return OverviewPointBody(
        interval.since,
        interval.submitted,
        interval.started,
        interval.completed,
        interval.failed,
        interval.cancelled,
        interval.retried,
        interval.rescued,
        _quantile(interval.waits, 0.5),
        _quantile(interval.waits, 0.99),
        _quantile(interval.runs, 0.5),
        _quantile(interval.runs, 0.99),
    )


def _quantile(counts: Sequence[int], share: float) -> float | None:
    found = quantile(counts, share)
    return None if found is None else round(found, _DIGITS)


def _lane(backlog: LaneState) -> OverviewLane:
    oldest = backlog.oldest_queued_seconds
    return OverviewLane(
        backlog.lane.value,
        backlog.staged,
        backlog.queued,
        backlog.retrying,
        backlog.held,
        None if oldest is None else round(max(0.0, oldest), _DIGITS),
        backlog.is_exact,
    )


def _queue(backlog: QueueState) -> OverviewFlow:
    return OverviewFlow(
        backlog.org,
        backlog.queue_key,
        _label(backlog),
        backlog.endpoint,
        backlog.lane,
        backlog.queued,
        backlog.held,
        backlog.is_exact,
    )


def _label(backlog: QueueState) -> str:
    """The name for people: a run's id, else the queue key or the endpoint."""
    return run_label(backlog.queue_key) or backlog.queue_key or backlog.endpoint
