"""Another client's transaction stays open for long: dead rows accumulate, and claims continue.

Vacuum cannot remove rows that died after its start, and a claim walks past their entries in the
index of ready jobs. The test prints the cost, and asserts the pages that a claim reads, not its
time.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import pytest

from coatcheck.core.queries import sql
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.migrate import migrate
from tests.db.claimer import KEEP_COMPLETED_SECONDS, Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.plans import Plan, explain
from tests.db.rows import put_queue

JOBS = 5_000
ROOM = 100
FLOWS = 10
PAGES_FOR_A_DEAD_ROW_MAX = 0.2
"""Pages read per dead entry: a claim walks past the entry and reads its row, many of which share a
page. Measured: 0.03."""


@dataclass(frozen=True)
class Measured:
    """The result of claiming and completing ``JOBS`` jobs, and the plan of one claim after that."""

    jobs_per_second: float
    dead_rows: int
    plan: Plan

    def __str__(self) -> str:
        return (
            f"{self.jobs_per_second:,.0f} jobs/s, {self.dead_rows:,} dead rows, "
            f"a claim of {ROOM} reads {self.plan.buffers:,} pages"
        )


@pytest.fixture
async def sql_connection(pg_server: EmbeddedPostgres) -> AsyncIterator[AsyncpgConnection]:
    await migrate(pg_server.dsn)
    connection = await asyncpg.connect(pg_server.dsn)
    yield connection
    await connection.close()


async def test_claims_go_on_beside_a_transaction_that_stays_open(
    pg_server: EmbeddedPostgres, sql_connection: AsyncpgConnection
) -> None:
    async with claimer(pg_server.dsn) as worker:
        await measure(worker, sql_connection)  # warms up
        await sql_connection.execute("VACUUM ANALYZE jobs")
        before = await measure(worker, sql_connection)

        stranger = await asyncpg.connect(pg_server.dsn)
        open_since = stranger.transaction(isolation="repeatable_read")
        await open_since.start()
        await stranger.fetchval("SELECT count(*) FROM jobs")
        during = [await measure(worker, sql_connection) for _ in range(3)]
        await open_since.rollback()
        await stranger.close()

        await sql_connection.execute("VACUUM jobs")
        after = await measure(worker, sql_connection)

    print(f"\nbefore  {before}")
    for each in during:
        print(f"during  {each}  ({each.jobs_per_second / before.jobs_per_second:.2f} of before)")
    print(f"after   {after}  ({after.jobs_per_second / before.jobs_per_second:.2f} of before)")
    for each in (before, *during, after):
        assert each.plan.sequential_scans("jobs") == 0
        assert each.plan.indexes("queue") == {"queue_order"}
    for each in during:
        more = each.plan.buffers - before.plan.buffers
        assert more <= PAGES_FOR_A_DEAD_ROW_MAX * each.dead_rows
    assert after.plan.buffers <= 2 * before.plan.buffers, "it does not recover"


async def measure(worker: Claimer, connection: AsyncpgConnection) -> Measured:
    """Submit ``JOBS`` jobs, and claim and complete all of them."""
    for number in range(FLOWS):
        await put_queue(connection, JOBS // FLOWS, org=f"org {number}")
    began = time.monotonic()
    done = 0
    plan: Plan | None = None
    while claimed := await worker.claim(ROOM):
        done += await worker.complete(*claimed)
        if done == JOBS // 2:
            aside = time.monotonic()
            plan = await _plan(worker)
            began += time.monotonic() - aside
    took = time.monotonic() - began
    assert done == JOBS
    assert plan is not None
    await connection.execute("SELECT pg_stat_force_next_flush()")
    dead = await connection.fetchval(
        "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'jobs'"
    )
    return Measured(done / took, dead, plan)


async def _plan(worker: Claimer) -> Plan:
    nothing: list[object] = [[], [], [], [], [], []]
    order = worker.order(ROOM).arguments(limited=False)
    return await worker.line.run(
        lambda it: explain(it, sql("claims/exchange"), *order, *nothing, KEEP_COMPLETED_SECONDS, [])
    )
