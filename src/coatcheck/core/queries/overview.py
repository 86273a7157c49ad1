"""Queries for overviews: live jobs and workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection
from coatcheck.telemetry.job_stats import EVERYBODY

QUEUES_MAX: Final = 500
_OF_A_QUEUE_MIN: Final = 200
_COUNTED_MAX: Final = 200_000
_POSTPONED_MAX: Final = 20_000


class QueuedJobs(NamedTuple):
    """How many jobs of a queue wait. ``is_more``: it has more than were counted."""

    org: str
    queue_key: str
    endpoint: str
    lane: str
    jobs: int
    is_more: bool
    oldest_seconds: float


class HeldJobs(NamedTuple):
    """How many jobs of a queue workers hold."""

    org: str
    queue_key: str
    endpoint: str
    lane: str
    jobs: int


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


async def queued(db: Connection, org: str) -> list[QueuedJobs]:
    """The queues that have queued jobs, at most 500."""
    rows = await sql.fetch(
        db,
        "overview/flows",
        org=org,
        flows_max=QUEUES_MAX,
        of_a_flow_min=_OF_A_QUEUE_MIN,
        count_max=_COUNTED_MAX,
    )
    return [QueuedJobs(*row) for row in rows]


async def held(db: Connection, org: str) -> list[HeldJobs]:
    """The queues whose jobs workers hold."""
    return [HeldJobs(*row) for row in await sql.fetch(db, "overview/held", org=org)]


async def postponed(db: Connection, org: str) -> dict[tuple[str, str], int]:
    """How many jobs are staged or wait for a retry, by lane and state."""
    if org == EVERYBODY:
        rows = await sql.fetch(db, "overview/postponed_of_all", rows_max=_POSTPONED_MAX)
    else:
        rows = await sql.fetch(db, "overview/postponed", org=org, rows_max=_POSTPONED_MAX)
    return {(row["lane"], row["state"]): row["jobs"] for row in rows}


async def workers(db: Connection, rows_max: int) -> list[WorkerView]:
    """The worker processes, newest first."""
    return [WorkerView(*row) for row in await sql.fetch(db, "workers/list", rows_max=rows_max)]
