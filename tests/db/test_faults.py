"""What PostgreSQL refuses for a while is tried again, three times in all, and then said."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from coatcheck.db.connection import Connection
from coatcheck.db.errors import retried
from coatcheck.domain.errors import DatabaseUnavailable
from coatcheck.domain.retry import DATABASE_ATTEMPTS
from tests.db.edge_guard import AsyncpgConnection


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="faults")
    yield opened
    await opened.close()


class Rival:
    """Somebody who changes the row that others are about to change, so many times."""

    def __init__(self, connection: AsyncpgConnection, times: int) -> None:
        self._connection = connection
        self._times = times
        self.tries = 0

    async def add_one(self, connection: asyncpg.Connection[asyncpg.Record]) -> int:
        """40001 if the rival was faster: what is changed is not what was seen any more."""
        self.tries += 1
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetchval("SELECT number FROM counted")
            if self.tries <= self._times:
                await self._connection.execute("UPDATE counted SET number = number + 10")
            number: int = await connection.fetchval(
                "UPDATE counted SET number = number + 1 RETURNING number"
            )
            return number


@pytest.fixture
async def counted(connection: AsyncpgConnection) -> AsyncpgConnection:
    await connection.execute("CREATE TABLE counted AS SELECT 0 AS number")
    return connection


async def test_a_transaction_that_another_came_before_is_tried_again(
    line: Connection, counted: AsyncpgConnection
) -> None:
    rival = Rival(counted, times=DATABASE_ATTEMPTS - 1)
    assert await retried(lambda: line.run(rival.add_one)) == 10 * (DATABASE_ATTEMPTS - 1) + 1
    assert rival.tries == DATABASE_ATTEMPTS


async def test_after_three_times_it_is_said_and_nothing_was_done(
    line: Connection, counted: AsyncpgConnection
) -> None:
    rival = Rival(counted, times=DATABASE_ATTEMPTS)
    with pytest.raises(DatabaseUnavailable, match="SerializationError"):
        await retried(lambda: line.run(rival.add_one))
    assert rival.tries == DATABASE_ATTEMPTS == 3
    assert await counted.fetchval("SELECT number FROM counted") == 30


@pytest.mark.parametrize(
    "code",
    [
        "40001",  # serialization failure
        "40P01",  # deadlock
        "53100",  # disk full
        "53200",  # out of memory
        "53300",  # too many connections
        "57P03",  # starting up
        "25006",  # read only
    ],
)
async def test_what_the_server_says_for_a_while_is_no_defect(line: Connection, code: str) -> None:
    with pytest.raises(DatabaseUnavailable):
        await line.fetch(f"DO $$ BEGIN RAISE SQLSTATE '{code}'; END $$")
    assert (await line.fetch("SELECT 1"))[0][0] == 1, "the next one finds a connection"


async def test_what_it_would_say_again_is_a_defect_and_not_tried_again(line: Connection) -> None:
    tries = 0

    async def broken() -> list[asyncpg.Record]:
        nonlocal tries
        tries += 1
        return await line.fetch("SELECT 1 / 0")

    with pytest.raises(asyncpg.DivisionByZeroError):
        await retried(broken)
    assert tries == 1
