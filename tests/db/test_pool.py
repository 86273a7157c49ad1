"""The pool: bounded, in order, fair to short statements, and whole again after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from coatcheck.db.connection import PINNED_PLANS, RawConnection
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.errors import retried
from coatcheck.db.pool import Pool, PooledConnection
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from tests.db.blocking import until_blocked
from tests.db.edge_guard import AsyncpgConnection
from tests.db.lossy_proxy import LossyProxy
from tests.db.rows import connected
from tests.waiting import eventually_async

LOCK = "SELECT pg_advisory_xact_lock(42)"
PID = "SELECT pg_backend_pid()"
SIZE = 4
"""Two of them are kept from long statements."""


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[Pool]:
    opened = Pool(dsn, size=SIZE)
    yield opened
    await opened.close()


@asynccontextmanager
async def held_lock(dsn: str) -> AsyncIterator[None]:
    """Everybody who wants the lock waits for it."""
    async with connected(dsn) as holder, holder.transaction():
        await holder.execute(LOCK)
        yield


async def sessions(connection: AsyncpgConnection) -> int:
    counted: int = await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = 'coatcheck pool' AND datname = current_database()"
    )
    return counted


async def blocked(connection: AsyncpgConnection, number: int) -> None:
    """Wait until so many sessions of the pool wait for a lock."""
    seen: tuple[int, ...] = ()
    for _ in range(number):
        seen = (*seen, await until_blocked(connection, "coatcheck pool", other_than=seen))


async def test_components_that_ask_together_have_no_more_sessions_than_the_pool(
    pool: Pool, dsn: str, connection: AsyncpgConnection
) -> None:
    components = [pool.connection(f"component {number}") for number in range(3 * SIZE)]
    async with held_lock(dsn):
        asked = [asyncio.create_task(each.fetch(LOCK)) for each in components]
        await blocked(connection, SIZE)
        assert await sessions(connection) == SIZE
    await asyncio.gather(*asked)
    assert await sessions(connection) == SIZE


async def test_a_component_occupies_one_session_however_many_ask_it(
    pool: Pool, dsn: str, connection: AsyncpgConnection
) -> None:
    component, other = pool.connection("busy"), pool.connection("other")
    async with held_lock(dsn):
        asked = [asyncio.create_task(component.fetch(LOCK)) for _ in range(10)]
        await blocked(connection, 1)
        await other.fetch("SELECT 1")
        assert await sessions(connection) == 2
    await asyncio.gather(*asked)


async def test_those_who_wait_are_served_in_order(dsn: str, connection: AsyncpgConnection) -> None:
    pool = Pool(dsn, size=3)  # one at a time of those that may take long
    served: list[int] = []

    async def ask(number: int) -> None:
        await pool.connection(f"component {number}", is_long=True).fetch(LOCK)
        served.append(number)

    async with held_lock(dsn):
        waiting = []
        for number in range(6):
            waiting.append(asyncio.create_task(ask(number)))
            await asyncio.sleep(0)
        await blocked(connection, 1)
        waiting[2].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert served == [0, 1, 3, 4, 5]
    await pool.close()


async def test_long_statements_leave_sessions_to_the_short_ones(
    pool: Pool, dsn: str, connection: AsyncpgConnection
) -> None:
    long = [pool.connection(f"long {number}", is_long=True) for number in range(2 * SIZE)]
    short = [pool.connection(f"short {number}") for number in range(2 * SIZE)]
    async with held_lock(dsn):
        asked = [asyncio.create_task(each.fetch(LOCK)) for each in long]
        await blocked(connection, SIZE - 2)
        await asyncio.gather(*(each.fetch("SELECT 1") for each in short))
    await asyncio.gather(*asked)


async def test_a_wait_is_bounded_and_says_that_nothing_was_done(
    pool: Pool, dsn: str, connection: AsyncpgConnection
) -> None:
    occupants = [pool.connection(f"occupant {number}") for number in range(SIZE)]
    hasty = pool.connection("hasty", statement_seconds_max=0.1)
    async with held_lock(dsn):
        asked = [asyncio.create_task(each.fetch(LOCK)) for each in occupants]
        await blocked(connection, SIZE)
        with pytest.raises(DatabaseUnavailable, match=r"no connection .* was free for hasty"):
            await hasty.fetch("SELECT 1")
    await asyncio.gather(*asked)
    await hasty.fetch("SELECT 1")


async def test_a_statement_that_takes_too_long_has_an_unknown_outcome(pool: Pool, dsn: str) -> None:
    hasty = pool.connection("hasty", statement_seconds_max=0.2)
    async with held_lock(dsn):
        with pytest.raises(OutcomeUnknown):
            await hasty.fetch(LOCK)
    await hasty.fetch(LOCK)


async def test_one_that_is_cancelled_while_it_waits_takes_no_session_with_it(
    pool: Pool, dsn: str, connection: AsyncpgConnection
) -> None:
    components = [pool.connection(f"component {number}") for number in range(3 * SIZE)]
    async with held_lock(dsn):
        asked = [asyncio.create_task(each.fetch(LOCK)) for each in components]
        await blocked(connection, SIZE)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

        async def closed() -> bool:
            return await sessions(connection) == 0

        await eventually_async(closed, "the sessions of those who were cancelled are closed")
    await asyncio.gather(*(each.fetch(LOCK) for each in components))
    assert await sessions(connection) <= SIZE


async def test_one_that_is_cancelled_just_before_a_session_is_returned_is_cancelled(
    pool: Pool,
) -> None:
    lent = [await pool.borrow({}, is_long=False) for _ in range(SIZE)]
    waiting = asyncio.create_task(pool.borrow({}, is_long=False))
    await asyncio.sleep(0)  # it runs until it waits
    waiting.cancel()
    for session in lent:
        pool.give_back(session, is_long=False)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    pool.give_back(await pool.borrow({}, is_long=False), is_long=False)


async def test_a_transaction_whose_server_falls_silent_ends_and_returns_its_turn(dsn: str) -> None:
    async def transaction(raw: RawConnection) -> None:
        async with raw.transaction():
            await raw.execute(LOCK)

    async with LossyProxy.before(dsn) as proxy:
        pool = Pool(proxy.dsn, size=1)
        component = pool.connection("component", statement_seconds_max=0.5)
        await component.fetch("SELECT 1")
        proxy.lose_answers(after=b"pg_advisory")
        with pytest.raises(OutcomeUnknown):
            await component.run(transaction)
        proxy.cut()
        assert await pool.connection("other").fetch("SELECT 1")
        await pool.close()


async def test_a_statement_that_takes_too_long_is_cancelled_and_leaves_the_idle_sessions(
    pool: Pool, dsn: str, connection: AsyncpgConnection
) -> None:
    async def nobody_waits() -> bool:
        waiting: int = await connection.fetchval(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return waiting == 0

    session, other = [await pool.borrow({}, is_long=False) for _ in range(2)]
    for each in (session, other):
        pool.give_back(each, is_long=False)
    async with held_lock(dsn):
        with pytest.raises(OutcomeUnknown):
            await pool.connection("hasty", statement_seconds_max=0.2).fetch(LOCK)
        await eventually_async(nobody_waits, "the statement is cancelled")
    assert not session.raw.is_closed()
    assert not other.raw.is_closed()


async def test_each_component_has_its_own_settings_even_if_the_pool_is_full(pool: Pool) -> None:
    async def settings_of(component: PooledConnection) -> tuple[str, str, str]:
        (row,) = await component.fetch(
            "SELECT current_setting('plan_cache_mode'), current_setting('statement_timeout'),"
            " current_setting('enable_seqscan')"
        )
        return tuple(row)

    pinned = pool.connection("pinned", server_settings=PINNED_PLANS)
    listing = pool.connection("listing", server_settings={"statement_timeout": "5000"})
    usual = pool.connection("usual")
    others = [pool.connection("other", server_settings={"work_mem": f"{n}MB"}) for n in (5, 6, 7)]
    for _ in range(3):
        assert await settings_of(pinned) == ("force_generic_plan", "0", "off")
        assert await settings_of(listing) == ("auto", "5s", "on")
        assert await settings_of(usual) == ("auto", "0", "on")
        for other in others:
            assert await settings_of(other) == ("auto", "0", "on")


async def test_a_plan_that_was_made_under_other_settings_is_not_used(
    dsn: str, connection: AsyncpgConnection
) -> None:
    """The driver keeps the prepared statement; PostgreSQL must plan it anew."""
    pool = Pool(dsn, size=3)
    await connection.execute(
        "CREATE TABLE pages (id int PRIMARY KEY); INSERT INTO pages SELECT generate_series(1, 10);"
        "ANALYZE pages"
    )
    generic = {"plan_cache_mode": "force_generic_plan"}
    scans = pool.connection("scans", server_settings=generic)
    seeks = pool.connection("seeks", server_settings={**generic, "enable_seqscan": "off"})

    async def plan(component: PooledConnection) -> str:
        async def explain(raw: AsyncpgConnection) -> str:
            rows = await raw.fetch("EXPLAIN EXECUTE page (1)")
            return str(rows[0][0])

        return await component.run(explain)

    async def prepare(raw: AsyncpgConnection) -> None:
        await raw.execute("PREPARE page (int) AS SELECT FROM pages WHERE id = $1")

    await scans.run(prepare)
    assert "Seq Scan" in await plan(scans)
    # Fill the pool with sessions of other settings, so that the next one is switched.
    others = [pool.connection("o", server_settings={"work_mem": f"{n}MB"}) for n in (5, 6)]
    for other in others:
        await other.fetch("SELECT 1")
    assert "Index" in await plan(seeks)
    await pool.close()


async def test_an_error_of_a_statement_costs_no_session(
    pool: Pool, connection: AsyncpgConnection
) -> None:
    component = pool.connection("component")
    ((before,),) = await component.fetch(PID)
    with pytest.raises(asyncpg.UndefinedTableError):
        await component.fetch("SELECT * FROM nowhere")
    ((after,),) = await component.fetch(PID)
    assert after == before


async def test_a_session_that_was_left_in_a_transaction_is_not_lent_again(pool: Pool) -> None:
    component = pool.connection("component")
    ((before,),) = await component.fetch(PID)

    async def forget_to_end_it(raw: AsyncpgConnection) -> None:
        await raw.execute("BEGIN")

    await component.run(forget_to_end_it)
    ((after,),) = await component.fetch(PID)
    assert after != before


async def test_after_a_restart_of_postgresql_no_one_meets_a_dead_session_twice(
    pg_server: EmbeddedPostgres,
) -> None:
    pool = Pool(pg_server.dsn, size=SIZE)
    components = [pool.connection(f"component {number}") for number in range(3 * SIZE)]
    await asyncio.gather(*(each.fetch("SELECT pg_sleep(0.01)") for each in components))
    pg_server.stop()
    with pytest.raises((DatabaseUnavailable, OutcomeUnknown)):
        await components[0].fetch("SELECT 1")
    pg_server.start()
    await asyncio.gather(
        *(retried(lambda each=each: each.fetch("SELECT 1")) for each in components)  # type: ignore[misc]
    )
    async with connected(pg_server.dsn) as connection:
        assert await sessions(connection) <= SIZE
    await pool.close()


async def test_what_is_idle_is_closed(
    pool: Pool, connection: AsyncpgConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coatcheck.db.pool.IDLE_SECONDS_MAX", 0.0)
    component = pool.connection("component")
    await component.fetch("SELECT 1")

    async def closed() -> bool:
        return await sessions(connection) == 0

    await eventually_async(closed, "nothing is open")
    await component.fetch("SELECT 1")
