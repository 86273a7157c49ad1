"""Queries that explain a job: why it is stalled, the conditions that apply to it, its position,
recent run times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple
from uuid import UUID

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.explanation import Holder
from coatcheck.domain.lanes import Lane, LanePolicy

AHEAD_MAX: Final = 10_000
_QUEUES_MAX: Final = 50
_RUNS_LOOKED_AT: Final = 100
_HOLDERS_LOOKED_AT: Final = 50


class Condition(NamedTuple):
    """One condition that applies to a job; ``jobs/explain`` describes its fields."""

    kind: Literal["limit", "rate", "server", "threads", "share", "holder", "remote"]
    scope: str | None
    name: str | None
    number: float | None
    of: float | None
    since: datetime | None
    until: datetime | None
    is_shared: bool
    is_fit: bool


class Ahead(NamedTuple):
    """How many jobs are ahead of a job in its flow, and how many flows take turns."""

    jobs: int
    queues: int


async def stall_reasons(
    db: Connection, keys: Sequence[tuple[str, UUID]], lanes: Mapping[Lane, LanePolicy]
) -> dict[tuple[str, UUID], str]:
    """Why each of these (org, id) is stalled; jobs that are not, or do not exist, are left out."""
    rows = await sql.fetch(
        db,
        "explain/stall",
        orgs=[org for org, _ in keys],
        ids=[job_id for _, job_id in keys],
        lanes=[lane.value for lane in lanes],
        lane_seconds=[policy.ack_seconds for policy in lanes.values()],
    )
    return {(row["org_id"], row["id"]): row["reason"] for row in rows if row["reason"] is not None}


async def conditions(db: Connection, org: str, job: UUID) -> list[Condition]:
    """All conditions that apply to the job now; none if it has ended."""
    return [Condition(*row) for row in await sql.fetch(db, "explain/explain", org=org, job=job)]


async def ahead(db: Connection, org: str, job: UUID) -> Ahead | None:
    """How many jobs are ahead of a queued job; None if it is not queued."""
    rows = await sql.fetch(
        db, "explain/ahead", org=org, job=job, jobs_max=AHEAD_MAX, flows_max=_QUEUES_MAX
    )
    return Ahead(*rows[0]) if rows else None


async def holders(db: Connection, org: str, scope: str, name: str) -> list[Holder]:
    """The organisation's jobs that use up a limit, longest held first."""
    rows = await sql.fetch(
        db, "explain/holders", org=org, scope=scope, name=name, rows_max=_HOLDERS_LOOKED_AT
    )
    return [Holder(*row) for row in rows]


async def held_of(db: Connection, endpoints: Sequence[str]) -> int:
    """How many jobs of these endpoints are held, over all organisations."""
    held: int = await sql.value(db, "explain/held_of", endpoints=list(endpoints))
    return held


async def recent_runs(
    db: Connection, org: str, owner: str, endpoint: str, queue_key: str
) -> list[float]:
    """How long the last completed jobs of a kind ran, in seconds."""
    of_upstream = endpoint == UPSTREAM_ENDPOINT
    service = (queue_key if of_upstream else endpoint).partition(".")[0]
    rows = await sql.fetch(
        db,
        "explain/recent_runs",
        org=org,
        service=service,
        owner=owner,
        endpoint=endpoint,
        flow=queue_key if of_upstream else None,
        rows_max=_RUNS_LOOKED_AT,
    )
    return [row["seconds"] for row in rows]


async def recent_task_runs(db: Connection, org: str, run: UUID) -> list[float]:
    """How long some completed tasks of a run ran, in seconds."""
    rows = await sql.fetch(
        db, "explain/recent_task_runs", org=org, run=run, rows_max=_RUNS_LOOKED_AT
    )
    return [row["seconds"] for row in rows]


async def next_of_run(db: Connection, org: str, run: UUID) -> UUID | None:
    """A task that represents the unfinished ones of a run; None if all have ended."""
    rows = await sql.fetch(db, "explain/next_of_run", org=org, run=run)
    return rows[0]["id"] if rows else None
