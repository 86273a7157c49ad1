"""What waits and runs now, for people to look at. One method a file of ``sql/overview``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from coatcheck.core.sql import sql
from coatcheck.db.connection import Connection
from coatcheck.telemetry.job_stats import EVERYBODY

FLOWS_MAX: Final = 500
_OF_A_FLOW_MIN: Final = 200
_COUNTED_MAX: Final = 200_000
_POSTPONED_MAX: Final = 20_000


class QueuedFlow(NamedTuple):
    """A flow of an endpoint that has jobs queued. ``is_more``: it has more than were counted."""

    org: str
    flow: str
    endpoint: str
    lane: str
    jobs: int
    is_more: bool
    oldest_seconds: float


class HeldFlow(NamedTuple):
    """How many jobs of a flow of an endpoint are at work."""

    org: str
    flow: str
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


async def flows(db: Connection, org: str) -> list[QueuedFlow]:
    """The flows that have work, the first 500 that are found."""
    rows = await db.fetch(sql("overview/flows"), org, FLOWS_MAX, _OF_A_FLOW_MIN, _COUNTED_MAX)
    return [QueuedFlow(*row) for row in rows]


async def held(db: Connection, org: str) -> list[HeldFlow]:
    """The flows that have jobs at work."""
    return [HeldFlow(*row) for row in await db.fetch(sql("overview/held"), org)]


async def postponed(db: Connection, org: str) -> dict[tuple[str, str], int]:
    """How many jobs wait for their time, by lane and state."""
    if org == EVERYBODY:
        rows = await db.fetch(sql("overview/postponed_of_all"), _POSTPONED_MAX)
    else:
        rows = await db.fetch(sql("overview/postponed"), org, _POSTPONED_MAX)
    return {(row["lane"], row["state"]): row["jobs"] for row in rows}


async def workers(db: Connection, rows_max: int) -> list[WorkerView]:
    """The worker processes, newest first."""
    return [WorkerView(*row) for row in await db.fetch(sql("workers/list"), rows_max)]
