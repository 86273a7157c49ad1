"""The overview of an organisation or of the whole deployment: recent rates and times, queues,
workers. It reads roll-ups and live jobs, never the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from coatcheck.core.queries import jobs as job_store
from coatcheck.core.queries import maintenance, overview, roll_ups, service_secrets
from coatcheck.core.queries import webhooks as webhook_store
from coatcheck.core.queries.overview import WorkerView
from coatcheck.core.queries.roll_ups import Interval
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.database import Database
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import ROLL_UPS_KEPT_SECONDS
from coatcheck.domain.states import State
from coatcheck.telemetry.queue_metrics import QueueStatus

POINTS_MAX: Final = 120
SPAN_MINUTES_MIN: Final = 5
SPAN_MINUTES_MAX: Final = 43_200
_QUEUES_SHOWN_MAX: Final = 20
_CODES_SHOWN_MAX: Final = 20
_WORKERS_MAX: Final = 200
_INTERVALS: Final = {
    60: (60, 120),
    900: (900, 1_800),
    3_600: (3_600, 7_200, 10_800, 21_600),
}
"""The lengths that a point of the series may have, by the step of its roll-ups."""
_ORIGIN: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""The origin that intervals are counted from, as in ``series`` of ``core/queries/roll_ups.sql``."""


@dataclass(frozen=True, slots=True)
class LaneState:
    """A lane's live jobs. ``is_exact``: all queued jobs were counted."""

    lane: Lane
    staged: int
    queued: int
    retrying: int
    held: int
    oldest_queued_seconds: float | None
    is_exact: bool


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue that has jobs. ``is_exact``: all its queued jobs were counted."""

    org: str
    queue_key: str
    endpoint: str
    lane: str
    queued: int
    held: int
    is_exact: bool

    @property
    def flow(self) -> str:
        """The old name of ``queue_key``, removed with 0.1.0."""
        return self.queue_key


@dataclass(frozen=True, slots=True)
class OverviewView:
    """An overview. ``series`` has a point for every interval of the span, oldest first."""

    org: str
    generated_at: datetime
    interval_seconds: int
    series: Sequence[Interval]
    lanes: Sequence[LaneState]
    queues: Sequence[QueueState]
    failures: Sequence[tuple[str, int]]
    workers: Sequence[WorkerView]

    @property
    def flows(self) -> Sequence[QueueState]:
        """The old name of ``queues``, removed with 0.1.0."""
        return self.queues


class Overviews:
    """Reads overviews."""

    def __init__(self, database: Database) -> None:
        self._db = database.pooled("overview", server_settings=PINNED_PLANS, is_long=True)

    async def read(self, org: str, minutes: int) -> OverviewView:
        """The overview of an organisation, or of all (``*``), over the last ``minutes``."""
        db = self._db
        step, interval = _resolution(minutes)
        now = await maintenance.clock(db)
        first = _floor(now - timedelta(minutes=minutes), interval)
        found = await roll_ups.series(
            db, org, step_seconds=step, since=first, interval_seconds=interval
        )
        failures = await roll_ups.failures(
            db, org, step_seconds=step, since=first, codes_max=_CODES_SHOWN_MAX
        )
        queued = await overview.queued(db, org)
        held = await overview.held(db, org)
        postponed = await overview.postponed(db, org)
        return OverviewView(
            org=org,
            generated_at=now,
            interval_seconds=interval,
            series=_without_gaps(found, first, now, interval),
            lanes=[_lane(lane, queued, held, postponed) for lane in Lane],
            queues=_queues(queued, held),
            failures=failures,
            workers=await self.workers(),
        )

    async def queue(self) -> QueueStatus:
        """Everything that waits in the deployment, fully counted. A long queue takes a while to
        count, so no request for a job should wait behind it."""
        waiting = await job_store.waiting(self._db)
        overdue = await webhook_store.overdue_seconds(self._db)
        sealed = await service_secrets.count(self._db)
        return QueueStatus(waiting, overdue or 0.0, sealed_secrets=sealed)

    async def workers(self) -> Sequence[WorkerView]:
        """The worker processes, newest first."""
        return await overview.workers(self._db, _WORKERS_MAX)


def _resolution(minutes: int) -> tuple[int, int]:
    """The step of the roll-ups to read, and how many seconds each point covers."""
    span = minutes * 60
    for step, intervals in _INTERVALS.items():
        for interval in intervals:
            # The first interval may begin up to its length before the span.
            is_kept = span + interval <= ROLL_UPS_KEPT_SECONDS[step]
            if is_kept and span <= POINTS_MAX * interval:
                return step, interval
    raise AssertionError("the longest span has its interval")


def _floor(moment: datetime, seconds: int) -> datetime:
    return moment - (moment - _ORIGIN) % timedelta(seconds=seconds)


def _without_gaps(
    found: Sequence[Interval], first: datetime, now: datetime, seconds: int
) -> list[Interval]:
    known = {each.since: each for each in found}
    series = []
    at = first
    while at <= now:
        series.append(known.get(at) or Interval(at, 0, 0, 0, 0, 0, 0, 0, (), ()))
        at += timedelta(seconds=seconds)
    return series[-POINTS_MAX:]


def _lane(
    lane: Lane,
    queued: Sequence[overview.QueuedJobs],
    held: Sequence[overview.HeldJobs],
    postponed: dict[tuple[str, str], int],
) -> LaneState:
    waiting = [each for each in queued if each.lane == lane]
    return LaneState(
        lane=lane,
        staged=postponed.get((lane, State.STAGED), 0),
        queued=sum(each.jobs for each in waiting),
        retrying=postponed.get((lane, State.RETRYING), 0),
        held=sum(each.jobs for each in held if each.lane == lane),
        oldest_queued_seconds=max((each.oldest_seconds for each in waiting), default=None),
        is_exact=len(queued) < overview.QUEUES_MAX and not any(each.is_more for each in waiting),
    )


def _queues(
    queued: Sequence[overview.QueuedJobs], held: Sequence[overview.HeldJobs]
) -> list[QueueState]:
    at_work = {(each.org, each.queue_key, each.endpoint, each.lane): each.jobs for each in held}
    queues = [
        QueueState(
            each.org,
            each.queue_key,
            each.endpoint,
            each.lane,
            each.jobs,
            at_work.get((each.org, each.queue_key, each.endpoint, each.lane), 0),
            not each.is_more,
        )
        for each in queued
    ]
    queues.sort(key=lambda each: each.queued, reverse=True)
    return queues[:_QUEUES_SHOWN_MAX]
