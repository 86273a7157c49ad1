"""The overview of an organisation or of the whole deployment: recent rates and times, queues,
workers. It reads roll-ups and live jobs, never the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from coatcheck.core.queries import jobs as job_store
from coatcheck.core.queries import maintenance, roll_ups, service_secrets, sql
from coatcheck.core.queries.roll_ups import Interval
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.database import Database
from coatcheck.db.queries import Row
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import ROLL_UPS_KEPT_SECONDS
from coatcheck.domain.states import State
from coatcheck.telemetry.job_stats import EVERYBODY
from coatcheck.telemetry.queue_metrics import QueueStatus

POINTS_MAX: Final = 120
SPAN_MINUTES_MIN: Final = 5
SPAN_MINUTES_MAX: Final = 43_200
_QUEUES_SHOWN_MAX: Final = 20
_CODES_SHOWN_MAX: Final = 20
_WORKERS_MAX: Final = 200
_QUEUES_MAX: Final = 500
_OF_A_QUEUE_MIN: Final = 200
_COUNTED_MAX: Final = 200_000
_POSTPONED_MAX: Final = 20_000
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


class WorkerView(NamedTuple):
    """A worker process. ``slots`` is how many jobs it runs at a time in each of ``lanes``."""

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
        queued = await sql.fetch(
            db,
            "overview/flows",
            org=org,
            flows_max=_QUEUES_MAX,
            of_a_flow_min=_OF_A_QUEUE_MIN,
            count_max=_COUNTED_MAX,
        )
        held = await sql.fetch(db, "overview/held", org=org)
        if org == EVERYBODY:
            late = await sql.fetch(db, "overview/postponed_of_all", rows_max=_POSTPONED_MAX)
        else:
            late = await sql.fetch(db, "overview/postponed", org=org, rows_max=_POSTPONED_MAX)
        postponed = {(row["lane"], row["state"]): row["jobs"] for row in late}
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
        overdue = await sql.value(self._db, "webhooks/overdue")
        sealed = await service_secrets.count(self._db)
        ((wal_bytes, commits),) = await sql.fetch(self._db, "overview/written")
        return QueueStatus(
            waiting,
            overdue or 0.0,
            sealed_secrets=sealed,
            wal_bytes=wal_bytes,
            commits=commits,
        )

    async def workers(self) -> Sequence[WorkerView]:
        """The worker processes, newest first."""
        rows = await sql.fetch(self._db, "workers/list", rows_max=_WORKERS_MAX)
        return [WorkerView(*row) for row in rows]


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
    lane: Lane, queued: Sequence[Row], held: Sequence[Row], postponed: dict[tuple[str, str], int]
) -> LaneState:
    waiting = [row for row in queued if row["lane"] == lane]
    return LaneState(
        lane=lane,
        staged=postponed.get((lane, State.STAGED), 0),
        queued=sum(row["jobs"] for row in waiting),
        retrying=postponed.get((lane, State.RETRYING), 0),
        held=sum(row["jobs"] for row in held if row["lane"] == lane),
        oldest_queued_seconds=max((row["oldest_seconds"] for row in waiting), default=None),
        is_exact=len(queued) < _QUEUES_MAX and not any(row["is_more"] for row in waiting),
    )


def _queues(queued: Sequence[Row], held: Sequence[Row]) -> list[QueueState]:
    held_jobs = {row[:4]: row["jobs"] for row in held}
    queues = []
    for row in queued:
        org, key, endpoint, lane = row[:4]
        busy = held_jobs.get(row[:4], 0)
        queues.append(QueueState(org, key, endpoint, lane, row["jobs"], busy, not row["is_more"]))
    queues.sort(key=lambda each: each.queued, reverse=True)
    return queues[:_QUEUES_SHOWN_MAX]
