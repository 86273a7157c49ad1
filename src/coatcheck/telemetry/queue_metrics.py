"""Metrics read from the database at each scrape: the queue, pending webhooks, and what PostgreSQL
has written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge

from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import HELD, WAITING, State
from coatcheck.telemetry.metrics import DeclaredMetric
from coatcheck.telemetry.snapshots import Snapshot, take_snapshot

DATABASE_UP: Final = DeclaredMetric(
    "coatcheck_database_up", "gauge", "1 if the database answered this scrape.", ()
)
DEPTH: Final = DeclaredMetric(
    "coatcheck_queue_depth",
    "gauge",
    "Jobs that have not ended, by lane and state.",
    ("lane", "state"),
)
OLDEST: Final = DeclaredMetric(
    "coatcheck_queue_oldest_seconds",
    "gauge",
    "How long the longest-waiting job in a lane has been due; 0 if none waits.",
    ("lane",),
)
OVERDUE: Final = DeclaredMetric(
    "coatcheck_webhooks_overdue_seconds",
    "gauge",
    "How long the most overdue webhook has been due; 0 if none is. Excludes receivers that are "
    "paused, that poll for events, or that asked to wait.",
    (),
)
SEALED: Final = DeclaredMetric(
    "coatcheck_sealed_secrets",
    "gauge",
    "Secrets of registered services, by the id of the key that sealed them. `none`: services whose "
    "secrets are stored unsealed, until a key is set.",
    ("key",),
)
WAL_BYTES: Final = DeclaredMetric(
    "coatcheck_wal_bytes_total",
    "counter",
    "Bytes of write-ahead log that PostgreSQL has written. Of the whole server: it does not count "
    "them by database.",
    (),
)
COMMITS: Final = DeclaredMetric(
    "coatcheck_commits_total",
    "counter",
    "Transactions that PostgreSQL has committed in this database, with those that only read, and "
    "those of other programs.",
    (),
)
QUEUE_METRICS: Final = (DATABASE_UP, DEPTH, OLDEST, OVERDUE, SEALED, WAL_BYTES, COMMITS)
_UNSEALED: Final = "none"


class QueueWaiting(NamedTuple):
    """The number of jobs in a state in a lane, and how long the first of them has been due."""

    lane: Lane
    state: State
    jobs: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """The live jobs, and how long the most overdue webhook has been due. If not ``is_counted``,
    counting took too long, and neither is known."""

    waiting: Sequence[QueueWaiting] = field(default=())
    webhooks_overdue_seconds: float = 0.0
    is_counted: bool = True
    sealed_secrets: Mapping[str, int] = field(default_factory=dict)
    """By key; "" counts the services whose secrets are unsealed."""
    wal_bytes: int = 0
    commits: int = 0


def queue_snapshot(queue: QueueStatus | None) -> Snapshot:
    """The queue as samples. None if the database is unreachable, which is then all they say."""
    registry = CollectorRegistry()
    up = _gauge(DATABASE_UP, registry)
    if queue is None:
        up.set(0)
        return take_snapshot(registry, {})
    up.set(1)
    if not queue.is_counted:
        return take_snapshot(registry, {})
    depth, oldest = _gauge(DEPTH, registry), _gauge(OLDEST, registry)
    for lane in Lane:
        oldest.labels(lane.value)
        for state in sorted(WAITING | HELD):
            depth.labels(lane.value, state.value)
    for lane, state, jobs, seconds in queue.waiting:
        depth.labels(lane.value, state.value).set(jobs)
        if state is State.QUEUED:
            oldest.labels(lane.value).set(max(0.0, seconds))
    _gauge(OVERDUE, registry).set(max(0.0, queue.webhooks_overdue_seconds))
    sealed = _gauge(SEALED, registry)
    for key_id, secrets in queue.sealed_secrets.items():
        sealed.labels(key_id or _UNSEALED).set(secrets)
    for declared, count in ((WAL_BYTES, queue.wal_bytes), (COMMITS, queue.commits)):
        Counter(declared.name, declared.text, registry=registry).inc(count)
    return take_snapshot(registry, {})


def _gauge(declared: DeclaredMetric, registry: CollectorRegistry) -> Gauge:
    return Gauge(declared.name, declared.text, declared.labels, registry=registry)
