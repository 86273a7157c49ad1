"""Submissions that come while a statement is in flight share the next transaction."""

from __future__ import annotations

import asyncio

import pytest

from coatcheck.core import Engine, Ticket
from coatcheck.domain.errors import InvalidSubmission
from coatcheck.domain.ids import new_id
from tests.db.blocking import until_blocked
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ENDPOINT, insert_keyed

COMPANY = 50


class Blockade:
    """A submission that is seen to wait for a rival's lock, so that the next ones gather."""

    def __init__(self, engine: Engine, connection: AsyncpgConnection) -> None:
        self._engine = engine
        self._connection = connection
        self._rival = connection.transaction()

    async def __aenter__(self) -> asyncio.Task[Ticket]:
        await self._rival.start()
        await insert_keyed(self._connection, new_id(), "blocked")
        blocked = asyncio.create_task(self._engine.submit(ENDPOINT, idempotency_key="blocked"))
        await until_blocked(self._connection, "coatcheck submit")
        return blocked

    async def __aexit__(self, *_: object) -> None:
        await self._rival.rollback()


async def transactions_of(connection: AsyncpgConnection, tickets: list[Ticket]) -> set[str]:
    """The transactions that wrote these jobs."""
    rows = await connection.fetch(
        "SELECT xmin::text AS writer FROM jobs WHERE id = ANY ($1)", [t.uuid for t in tickets]
    )
    assert len(rows) == len(tickets)
    return {row["writer"] for row in rows}


async def test_those_who_come_while_a_statement_is_blocked_share_one_transaction(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    async with Blockade(engine, connection) as blocked:
        waiting = [asyncio.create_task(engine.submit(ENDPOINT)) for _ in range(COMPANY)]
        await asyncio.sleep(0)
    first = await blocked
    company = await asyncio.gather(*waiting)
    assert len(await transactions_of(connection, company)) == 1
    assert len(await transactions_of(connection, [first, *company])) == 2


async def test_a_refused_submission_does_not_touch_the_others(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    async with Blockade(engine, connection) as blocked:
        waiting = [asyncio.create_task(engine.submit(ENDPOINT)) for _ in range(COMPANY)]
        with pytest.raises(InvalidSubmission):
            await engine.submit(ENDPOINT, org="")
    await blocked
    company = await asyncio.gather(*waiting)
    assert len(await transactions_of(connection, company)) == 1


async def test_a_caller_that_gives_up_does_not_disturb_the_others(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    async with Blockade(engine, connection) as blocked:
        waiting = [asyncio.create_task(engine.submit(ENDPOINT)) for _ in range(COMPANY)]
        await asyncio.sleep(0)
        waiting[7].cancel()
        blocked.cancel()
        await asyncio.wait([waiting[7], blocked])
    company = await asyncio.gather(*waiting[:7], *waiting[8:])
    assert len(await transactions_of(connection, company)) == 1


async def test_readers_that_come_together_are_each_given_their_own_job(engine: Engine) -> None:
    tickets = [await engine.submit(ENDPOINT, queue_key=f"key {number}") for number in range(10)]
    views = await asyncio.gather(*(engine.get(ticket.id) for ticket in tickets * 3))
    assert [view.queue_key for view in views] == [f"key {number}" for number in range(10)] * 3
