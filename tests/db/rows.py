"""Job rows put straight into the table, in whatever state a test begins with."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from coatcheck.core.queries import sql
from coatcheck.db.connection import Connection
from coatcheck.domain.ids import new_id
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from tests.db.edge_guard import AsyncpgConnection, unguarded

ORG = "acme"
ENDPOINT = "demo.post__work"
HOLDER_BOOT = 1
"""Who holds a job that was put into a held state: the first worker to register."""

STALE_LEASE = 999 << 40 | 1
"""A lease that somebody may once have had, and that nothing carries now."""

_numbers = itertools.count(1_000_000)
"""Claim numbers beyond those of the workers of a test."""


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[AsyncpgConnection]:
    """A plain connection, for looking and for arranging."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


def recorded(write: str) -> str:
    """A statement that writes jobs, with what the product writes beside them: the queue of those
    that are queued then, the rows of those that wait for a time or have a start deadline, when
    those expire that have ended, and where lists find those that were unsuccessful, and ended
    tasks."""
    return f"""
        WITH changed AS (
            {write}
            RETURNING org_id, id, lane, endpoint, flow, owner, run_at, state, run_id, expires_at,
                      task_index, error_code, start_deadline
        ),
        queued AS (SELECT c.* FROM changed AS c WHERE c.state = 'queued'),
        added AS ({sql("queue/add")}),
        put_off AS (SELECT c.* FROM changed AS c WHERE c.state IN ('staged', 'retrying')),
        put_off_now AS ({sql("postponed/add")}),
        postponed_no_more AS (
            DELETE FROM postponed AS p USING changed AS c
            WHERE p.org_id = c.org_id AND p.id = c.id AND c.state NOT IN ('staged', 'retrying')
        ),
        start_deadlines_now AS (
            INSERT INTO start_deadlines (org_id, id, due_at)
            SELECT c.org_id, c.id, c.start_deadline FROM changed AS c
            WHERE c.start_deadline IS NOT NULL
            ON CONFLICT (org_id, id) DO UPDATE SET due_at = excluded.due_at
        ),
        expiring AS ({sql("jobs/record_expiries")}),
        unsuccessful AS ({sql("jobs/record_unsuccessful")})
        {sql("jobs/record_tasks")}
    """


async def put_job(
    connection: AsyncpgConnection, state: State = State.QUEUED, **columns: Any
) -> ClaimedJob:
    """A job in ``state``, made without a transition. ``columns`` override what is usual for it.

    Answered as a worker would know it; its lease is the row's, or a stale one if the row has none.
    """
    row: dict[str, Any] = {
        "org_id": ORG,
        "id": new_id(),
        "lane": Lane.STANDARD.value,
        "state": state.value,
        "failures_max": 3,
        "endpoint": ENDPOINT,
        "flow": "",
        "payload": None if state.terminal else b"{}",
        "lease": HOLDER_BOOT << 40 | next(_numbers) if state.held else None,
    }
    now = datetime.now(UTC)
    if state.held:
        row |= {"dispatched_at": now, "run_deadline": now + timedelta(minutes=5)}
    if state.terminal:
        row |= {"finished_at": now, "expires_at": now + timedelta(days=1)}
    row |= columns
    names, numbers = ", ".join(row), ", ".join(f"${at}" for at in range(1, len(row) + 1))
    async with unguarded(connection):
        await connection.execute(
            recorded(f"INSERT INTO jobs ({names}) VALUES ({numbers})"), *row.values()
        )
    if row["lease"] is not None:
        await write_claims(connection, row["org_id"], [row["id"]])
    return ClaimedJob(
        row["org_id"],
        row["id"],
        Lane(row["lane"]),
        row["endpoint"],
        row["flow"],
        b"{}",
        1,
        row.get("failures", 0),
        row.get("unreachables", 0),
        None,
        None,
        row["lease"] or STALE_LEASE,
    )


async def expire(database: AsyncpgConnection | Connection, *jobs: UUID) -> None:
    """End the retention of ended jobs."""
    await database.fetch(
        """
        WITH ended AS (
            UPDATE jobs SET expires_at = now() - interval '1 second' WHERE id = ANY ($1::uuid[])
        )
        UPDATE job_expiries SET expires_at = now() - interval '1 second' WHERE ids && $1::uuid[]
        """,
        jobs,
    )


async def miss_start(connection: AsyncpgConnection, job: UUID) -> None:
    """Let a job have missed its start deadline."""
    await connection.execute(
        """
        WITH late AS (
            UPDATE jobs SET start_deadline = now() - interval '1 minute' WHERE id = $1
            RETURNING org_id, id, start_deadline
        )
        INSERT INTO start_deadlines (org_id, id, due_at) SELECT * FROM late
        ON CONFLICT (org_id, id) DO UPDATE SET due_at = excluded.due_at
        """,
        job,
    )


async def expiries(connection: AsyncpgConnection) -> dict[UUID, datetime]:
    """When each ended job is due to be deleted, as ``job_expiries`` says. None is there twice."""
    rows = await connection.fetch("SELECT unnest(ids) AS id, expires_at FROM job_expiries")
    moments = {row["id"]: row["expires_at"] for row in rows}
    assert len(moments) == len(rows)
    return moments


@asynccontextmanager
async def holding(connection: AsyncpgConnection) -> AsyncIterator[None]:
    """Let a test give jobs leases by hand: the claims that lead to them are written with them."""
    async with connection.transaction():
        yield
        await write_claims(connection)


async def write_claims(
    connection: AsyncpgConnection, org: str | None = None, jobs: Sequence[UUID] | None = None
) -> None:
    """Write the claims that are missing: of these jobs of an organisation, or of all jobs."""
    await connection.execute(
        """
        INSERT INTO claims AS k (org_id, lease, ids)
        SELECT j.org_id, j.lease, array_agg(j.id)
        FROM jobs AS j
        WHERE j.lease IS NOT NULL AND ($1::text IS NULL OR j.org_id = $1 AND j.id = ANY ($2))
          AND NOT EXISTS (
              SELECT FROM claims AS c
              WHERE c.org_id = j.org_id AND c.lease = j.lease AND j.id = ANY (c.ids)
          )
        GROUP BY j.org_id, j.lease
        ON CONFLICT (org_id, lease) DO UPDATE SET ids = k.ids || excluded.ids
        """,
        org,
        None if jobs is None else [*jobs],
    )


async def put_queue(
    connection: AsyncpgConnection,
    count: int,
    *,
    org: str = ORG,
    flow: str = "",
    lane: Lane = Lane.STANDARD,
    endpoint: str = ENDPOINT,
    owner: str = "",
) -> None:
    """``count`` queued jobs of one flow, each due a microsecond after the one before."""
    await connection.execute(
        recorded("""
        INSERT INTO jobs (org_id, id, lane, failures_max, endpoint, flow, owner, payload, run_at)
        SELECT $1, overlay(gen_random_uuid()::text PLACING '0190' FROM 1)::uuid,
               $2::text::job_lane, 3, $3, $4, $6, '{}',
               now() - interval '1 hour' + n * interval '1 microsecond'
        FROM generate_series(1, $5::integer) AS n
        """),
        org,
        lane.value,
        endpoint,
        flow,
        count,
        owner,
    )


async def put_flows(
    connection: AsyncpgConnection,
    flows: int,
    jobs_each: int,
    *,
    endpoint: str = ENDPOINT,
    org: str = "",
) -> None:
    """Many flows of queued jobs: each of an organisation of its own, or all of ``org``."""
    await connection.execute(
        recorded("""
        INSERT INTO jobs (org_id, id, lane, failures_max, endpoint, flow, payload)
        SELECT CASE $1 WHEN '' THEN 'org ' || f ELSE $1 END,
               overlay(gen_random_uuid()::text PLACING '0190' FROM 1)::uuid, 'standard', 3, $2,
               CASE $1 WHEN '' THEN '' ELSE 'flow ' || f END, '{}'
        FROM generate_series(1, $3::integer) AS f, generate_series(1, $4::integer) AS n
        """),
        org,
        endpoint,
        flows,
        jobs_each,
    )


async def insert_keyed(connection: AsyncpgConnection, job_id: UUID, key: str) -> None:
    """A queued job of the default organisation that has an idempotency key."""
    await connection.execute(
        recorded("""
        INSERT INTO jobs (org_id, id, lane, failures_max, endpoint, flow, payload, idempotency_key)
        VALUES ('default', $1, 'standard', 3, $2, '', '{}', $3)
        """),
        job_id,
        ENDPOINT,
        key,
    )


async def row_of(connection: AsyncpgConnection, job: ClaimedJob | UUID) -> asyncpg.Record:
    """All columns of a job."""
    row = await connection.fetchrow(
        "SELECT * FROM jobs WHERE id = $1", job if isinstance(job, UUID) else job.uuid
    )
    assert row is not None
    return row


async def state_of(connection: AsyncpgConnection, job: ClaimedJob | UUID) -> State:
    return State((await row_of(connection, job))["state"])


async def count_by_state(connection: AsyncpgConnection) -> dict[State, int]:
    rows = await connection.fetch("SELECT state::text, count(*) FROM jobs GROUP BY state")
    return {State(state): count for state, count in rows}
