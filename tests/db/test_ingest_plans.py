"""What taking lists in reads: a few rows by their indexes, however much history there is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest

from coatcheck.db.connection import PINNED_PLANS
from coatcheck.domain.ids import new_id
from coatcheck.products.batches.model import task_id
from coatcheck.products.batches.queries import sql
from tests.db.edge_guard import AsyncpgConnection, unguarded
from tests.db.plans import explain_query
from tests.db.rows import recorded

ORG = "acme"
PARTS = 2_000
TASKS = 20_000


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[AsyncpgConnection]:
    """A connection with the plans that those who take lists in have."""
    opened = await asyncpg.connect(dsn, server_settings=dict(PINNED_PLANS))
    yield opened
    await opened.close()


async def put_history(connection: AsyncpgConnection) -> None:
    """Many batches, each of one run and one part that was taken in."""
    await connection.execute(
        """
        WITH made AS (
            SELECT gen_random_uuid() AS batch, gen_random_uuid() AS run, gen_random_uuid() AS part
            FROM generate_series(1, $2::integer)
        ),
        b AS (
            INSERT INTO batches (
                org_id, id, owner, service, service_endpoint, endpoint, lane, failures_max, is_open,
                keep_seconds, current_run
            )
            SELECT $1, batch, 'dev', 'demo', '/work', 'demo.post__work', 'bulk', 3, false, 3600, run
            FROM made
        ),
        r AS (
            INSERT INTO runs (
                org_id, id, group_id, number, lane, endpoint, service, service_endpoint, total,
                closed_at, latched_at, completed_at
            )
            SELECT $1, run, batch, 1, 'bulk', 'demo.post__work', 'demo', '/work', 0, now(), now(),
                   now()
            FROM made
        )
        INSERT INTO batch_parts (org_id, id, batch_id, run_id, position, source, state)
        SELECT $1, part, batch, run, 1, 'pieces', 'done' FROM made
        """,
        ORG,
        PARTS,
    )
    await connection.execute("ANALYZE batches, runs, batch_parts")


async def test_lost_lists_are_found_without_reading_those_that_are_in(
    connection: AsyncpgConnection,
) -> None:
    await put_history(connection)
    await connection.execute(
        """
        UPDATE batch_parts SET state = 'pending'
        WHERE id IN (SELECT id FROM batch_parts LIMIT 3)
        """
    )
    await connection.execute("VACUUM batch_parts")
    plan = await explain_query(connection, sql, "ingest/lost", parts_max=200)

    assert plan.indexes("batch_parts") == {"batch_parts_pending"}
    assert plan.rows_read("batch_parts") == 3
    for table in ("batch_parts", "runs", "batches", "jobs"):
        assert plan.sequential_scans(table) == 0


async def test_a_lost_latch_is_looked_for_among_the_runs_that_go_on(
    connection: AsyncpgConnection,
) -> None:
    await put_history(connection)
    plan = await explain_query(connection, sql, "ingest/latch_missed", runs_max=200)

    assert plan.rows_read("runs") == 0
    assert plan.sequential_scans("batch_parts") == 0


async def test_an_order_is_a_few_rows_however_many_parts_there_are(
    connection: AsyncpgConnection,
) -> None:
    await put_history(connection)
    part = await connection.fetchval("SELECT id FROM batch_parts LIMIT 1")
    plan = await explain_query(connection, sql, "ingest/snapshot", org=ORG, part=part)

    assert plan.rows_read("batch_parts") <= 2
    assert plan.rows_read("runs") <= 2
    assert plan.rows_read("batches") == 1


async def test_dead_letters_are_read_by_their_own_index(connection: AsyncpgConnection) -> None:
    await put_history(connection)
    await connection.execute(
        """
        UPDATE batch_parts SET state = 'failed', error_code = 'x', error_message = 'x'
        WHERE id IN (SELECT id FROM batch_parts LIMIT 5)
        """
    )
    await connection.execute("VACUUM batch_parts")
    newest = await connection.fetchval("SELECT 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid")
    plan = await explain_query(
        connection, sql, "ingest/dead_letters", org=ORG, owner=None, after=newest, limit=2
    )

    assert plan.indexes("batch_parts") == {"batch_parts_failed"}
    assert plan.rows_read("batch_parts") <= 5


@pytest.mark.parametrize("codes", [None, ["broke"]])
async def test_a_rerun_reads_no_more_tasks_than_it_takes(
    connection: AsyncpgConnection, codes: list[str] | None
) -> None:
    run = new_id()
    async with unguarded(connection):
        await connection.execute(
            recorded("""
            INSERT INTO jobs (
                org_id, id, lane, endpoint, flow, failures_max, payload, state, finished_at,
                expires_at, run_id, task_index, error_code
            )
            SELECT $1, t.id, 'bulk', 'demo.post__work', '', 3, '1',
                   CASE WHEN t.n % 10 = 0 THEN 'failed' ELSE 'completed' END::job_state,
                   now(), 'infinity', $2, t.n, CASE WHEN t.n % 10 = 0 THEN 'broke' END
            FROM unnest($3::uuid[], $4::integer[]) AS t (id, n)
            """),
            ORG,
            run,
            [UUID(bytes=task_id(run, index)) for index in range(TASKS)],
            list(range(TASKS)),
        )
    await connection.execute("ANALYZE jobs, ended_tasks")
    plan = await explain_query(
        connection,
        sql,
        "ingest/select_ended",
        org=ORG,
        run=run,
        state="failed",
        error_codes=codes,
        after=4_999,
        limit=100,
    )

    assert plan.indexes("ended_tasks") == {"ended_tasks_pkey"}
    assert plan.rows_read("ended_tasks") <= (100 + 2 * 64) / 6 + 1
    assert plan.indexes("jobs") == {"jobs_pkey"}
    assert plan.rows_read("jobs") <= (100 + 64 if codes else 0)
