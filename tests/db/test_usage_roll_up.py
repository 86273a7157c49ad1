"""The roll-up moves what was used into the sums, and a reader sees the same before and after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime

import pytest

from coatcheck.core.queries import sql, usage
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.states import State
from coatcheck.domain.usage import UsageRow
from coatcheck.maintenance.retention import StatsPruner
from tests.db.blocking import until_blocked
from tests.db.claimer import Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.plans import explain_query
from tests.db.rows import ORG, put_job

EVER = (date(2000, 1, 1), date(2100, 1, 1))
ROWS_MAX = 1_000


@pytest.fixture
async def bookkeeping(dsn: str) -> AsyncIterator[Connection]:
    line = Connection(dsn, name="bookkeeping", server_settings=PINNED_PLANS)
    yield line
    await line.close()


async def complete(connection: AsyncpgConnection, worker: Claimer, count: int = 1) -> None:
    """Jobs that end, each in a statement of its own."""
    for _ in range(count):
        assert await worker.complete(await put_job(connection, State.PROCESSING)) == 1


async def used(line: Connection) -> list[UsageRow]:
    return await usage.read(line, ORG, *EVER, None)


async def rows_in(connection: AsyncpgConnection, table: str) -> int:
    count: int = await connection.fetchval(f"SELECT count(*) FROM {table}")
    return count


async def test_a_roll_up_changes_nothing_that_a_reader_sees(
    connection: AsyncpgConnection, worker: Claimer, bookkeeping: Connection
) -> None:
    await complete(connection, worker, 3)
    before = await used(worker.line)
    assert (await usage.roll_up(bookkeeping, ROWS_MAX)).deltas == 3
    assert await used(worker.line) == before
    await complete(connection, worker, 2)
    assert (await usage.roll_up(bookkeeping, ROWS_MAX)).deltas == 2
    (row,) = await used(worker.line)
    assert (row.completed, row.attempts) == (5, 5)
    assert row.run_seconds == pytest.approx(2.5)
    assert (await rows_in(connection, "usage"), await rows_in(connection, "usage_deltas")) == (1, 0)


async def by_hour(line: Connection) -> list[UsageRow]:
    return await usage.read_hours(line, ORG, *EVER, None)


async def test_hours_are_summed_up_by_the_roll_up_and_read_the_same_before_it(
    connection: AsyncpgConnection, worker: Claimer, bookkeeping: Connection
) -> None:
    """The hour of a delta is that of its jobs' end, whenever it is rolled up."""
    await complete(connection, worker, 2)
    await connection.execute(
        "UPDATE usage_deltas SET ended_at = '2026-01-31T23:59:59.999Z', day = '2026-01-31'"
    )
    await complete(connection, worker, 1)
    await connection.execute(
        "UPDATE usage_deltas SET ended_at = '2026-02-01T00:00:00Z', day = '2026-02-01'"
        " WHERE ended_at > '2026-02-01'"
    )
    before = await by_hour(worker.line)
    assert [(row.day, row.hour, row.completed) for row in before] == [
        (date(2026, 1, 31), datetime(2026, 1, 31, 23, tzinfo=UTC), 2),
        (date(2026, 2, 1), datetime(2026, 2, 1, 0, tzinfo=UTC), 1),
    ]
    assert (await usage.roll_up(bookkeeping, 1)).deltas == 1
    assert await by_hour(worker.line) == before
    assert (await usage.roll_up(bookkeeping, ROWS_MAX)).deltas == 2
    assert await by_hour(worker.line) == before
    assert await rows_in(connection, "usage_hours") == 2
    (only,) = await usage.read_hours(worker.line, ORG, date(2026, 2, 1), date(2026, 2, 1), None)
    assert only == before[1]


async def test_hours_are_kept_for_two_months_and_their_days_for_good(
    connection: AsyncpgConnection, worker: Claimer, bookkeeping: Connection
) -> None:
    await complete(connection, worker, 2)
    await connection.execute(
        "UPDATE usage_deltas SET ended_at = now() - interval '63 days'"
        " WHERE seq = (SELECT min(seq) FROM usage_deltas)"
    )
    await usage.roll_up(bookkeeping, ROWS_MAX)
    days = await used(worker.line)
    assert await rows_in(connection, "usage_hours") == 2
    assert await StatsPruner(bookkeeping).tick() > 0
    (left,) = await by_hour(worker.line)
    assert left.completed == 1
    assert await used(worker.line) == days


async def test_a_roll_up_takes_no_more_than_its_chunk(
    connection: AsyncpgConnection, worker: Claimer, bookkeeping: Connection
) -> None:
    await complete(connection, worker, 5)
    assert [(await usage.roll_up(bookkeeping, 2)).deltas for _ in range(4)] == [2, 2, 1, 0]
    assert (await used(worker.line))[0].completed == 5


async def test_a_finish_goes_on_while_a_roll_up_is_under_way_and_neither_loses_anything(
    connection: AsyncpgConnection, worker: Claimer, bookkeeping: Connection
) -> None:
    await complete(connection, worker, 2)
    async with connection.transaction():
        assert await sql.value(connection, "usage/roll_up", rows_max=ROWS_MAX) == 2
        await finish_beside(worker)
        assert (await used(bookkeeping))[0].completed == 3
    assert (await used(bookkeeping))[0].completed == 3
    assert (await usage.roll_up(bookkeeping, ROWS_MAX)).deltas == 1
    assert (await used(bookkeeping))[0].completed == 3


async def finish_beside(worker: Claimer) -> None:
    """A job that another connection ends meanwhile: nothing of the roll-up's holds it up."""
    job = await worker.line.run(lambda it: put_job(it, State.PROCESSING))
    assert await worker.complete(job) == 1


async def test_a_roll_up_that_meets_an_unfinished_finish_leaves_it_for_the_next(
    connection: AsyncpgConnection, worker: Claimer, bookkeeping: Connection
) -> None:
    await complete(connection, worker)
    job = await put_job(connection, State.QUEUED)
    async with connection.transaction():
        await sql.fetch(connection, "jobs/cancel", org=job.org, job=job.uuid, keep_seconds=60)
        assert (await usage.roll_up(bookkeeping, ROWS_MAX)).deltas == 1
    assert (await usage.roll_up(bookkeeping, ROWS_MAX)).deltas == 1
    (row,) = await used(worker.line)
    assert (row.completed, row.cancelled) == (1, 1)


async def test_two_roll_ups_at_once_count_nothing_twice(
    connection: AsyncpgConnection, worker: Claimer, bookkeeping: Connection
) -> None:
    """The rival passes over the rows that the first holds, and waits only for the sum."""
    await complete(connection, worker, 2)
    async with connection.transaction():
        assert await sql.value(connection, "usage/roll_up", rows_max=ROWS_MAX) == 2
        await finish_beside(worker)
        rival = asyncio.create_task(usage.roll_up(bookkeeping, ROWS_MAX))
        await until_blocked(connection, "coatcheck bookkeeping")
    assert (await rival).deltas == 1
    (row,) = await used(worker.line)
    assert row.completed == 3
    assert (await rows_in(connection, "usage"), await rows_in(connection, "usage_deltas")) == (1, 0)


async def test_a_roll_up_that_dies_leaves_everything_as_it_was(
    connection: AsyncpgConnection, worker: Claimer, bookkeeping: Connection
) -> None:
    await complete(connection, worker, 2)
    before = await used(worker.line)
    undone = connection.transaction()
    await undone.start()
    await sql.value(connection, "usage/roll_up", rows_max=ROWS_MAX)
    await undone.rollback()
    assert await used(worker.line) == before
    assert (await usage.roll_up(bookkeeping, ROWS_MAX)).deltas == 2
    assert await used(worker.line) == before


async def test_a_roll_up_reads_its_chunk_and_no_more(
    connection: AsyncpgConnection, worker: Claimer, bookkeeping: Connection
) -> None:
    await connection.execute(
        """
        INSERT INTO usage_deltas (org_id, day, completed, failed, cancelled, attempts,
                                  payload_bytes, result_bytes, run_seconds, endpoint, flow)
        SELECT 'org ' || n % 50, current_date, 1, 0, 0, 1, 1, 1, 1, 'e', ''
        FROM generate_series(1, 20000) AS n
        """
    )
    plan = await bookkeeping.run(lambda it: explain_query(it, sql, "usage/roll_up", rows_max=100))
    assert plan.sequential_scans("usage_deltas") == 0
    assert plan.rows_read("usage_deltas") <= 2 * 100 + 2
