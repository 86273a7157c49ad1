"""The bench's count of what jobs cost PostgreSQL: whose CPU time it is, and what was written."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench.job_cost import Reading, ServerReading
from bench.postgres import Database, Postgres, PostgresMeter
from bench.process_tree import Tree
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import connected
from tests.waiting import eventually_async

JOBS = 10


@pytest.fixture
async def database(data_root: Path) -> AsyncIterator[Database]:
    server = Postgres(data_root / "postgres")
    await server.start()
    await server.create_template("empty")
    yield await server.create_database("empty")
    await server.stop()


@pytest.fixture
async def meter(database: Database) -> AsyncIterator[PostgresMeter]:
    async with database.meter() as opened:
        yield opened


async def is_busy(session: AsyncpgConnection) -> None:
    for _ in range(5):
        await session.execute("SELECT count(*) FROM generate_series(1, 1000000)")


def reading(server: ServerReading) -> Reading:
    return Reading(Tree.read([os.getpid()]), server)


async def test_the_time_of_a_session_counts_as_the_workers_if_they_opened_it(
    database: Database, meter: PostgresMeter
) -> None:
    async with connected(database.worker_address) as workers, connected(database.address) as client:
        before = reading(await meter.read())
        await is_busy(client)
        between = reading(await meter.read())
        await is_busy(workers)
        after = reading(await meter.read())
    of_client, of_workers = between.cost_since(before, JOBS), after.cost_since(between, JOBS)
    assert of_client.serving_us < of_workers.serving_us / 2
    assert of_client.background_us < of_workers.serving_us / 2
    assert of_workers.total_us >= of_workers.serving_us


async def test_the_time_of_a_session_that_has_ended_is_not_lost(
    database: Database, meter: PostgresMeter
) -> None:
    async with connected(database.worker_address) as workers:
        pid = workers.get_server_pid()
        before = await meter.read()
        await is_busy(workers)
        used = (await meter.read()).tree.since(before.tree).of([pid])

    async def has_ended() -> bool:
        return pid not in (await meter.read()).tree.pids

    await eventually_async(has_ended, "the session has ended")
    assert (await meter.read()).tree.since(before.tree).ended >= used / 2


async def test_transactions_that_write_are_counted_at_once_and_others_are_not(
    database: Database, meter: PostgresMeter
) -> None:
    async with connected(database.worker_address) as workers:
        await workers.execute("CREATE TABLE written (n integer)")
        before = reading(await meter.read())
        for number in range(2 * JOBS):
            await workers.execute("INSERT INTO written VALUES ($1)", number)
            await workers.fetch("SELECT * FROM written")
        cost = reading(await meter.read()).cost_since(before, JOBS)
    assert cost.transactions == pytest.approx(2, abs=0.5)  # autovacuum may have written as well
    assert cost.wal_bytes is not None
    assert cost.wal_bytes > 0
