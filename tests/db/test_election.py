"""Of many processes that want to do a named thing, one is elected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from coatcheck.db import election
from coatcheck.db.connection import Connection
from coatcheck.db.database import Database
from coatcheck.db.election import Election
from coatcheck.domain.errors import OutcomeUnknown
from coatcheck.hosting import RemoteExecutor
from coatcheck.maintenance import MaintenanceRunner
from coatcheck.settings import Settings
from tests.all_products import PRODUCTS, maintenance
from tests.db.blocking import processes_named, terminate
from tests.db.edge_guard import AsyncpgConnection
from tests.waiting import eventually_async


@asynccontextmanager
async def line_named(dsn: str, name: str) -> AsyncIterator[Connection]:
    line = Connection(dsn, name=name)
    try:
        yield line
    finally:
        await line.close()


async def test_one_of_many_wins_and_goes_on_winning(dsn: str) -> None:
    async with AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(line_named(dsn, f"c{n}")) for n in range(5)]
        candidates = [Election(line, "stager") for line in lines]
        for _ in range(3):
            won = await asyncio.gather(*(candidate.won() for candidate in candidates))
            assert sum(won) == 1
        assert await candidates[won.index(True)].won()


async def test_elections_of_different_names_do_not_meet(dsn: str) -> None:
    async with line_named(dsn, "a") as first, line_named(dsn, "b") as second:
        assert await Election(first, "stager").won()
        assert await Election(second, "pruner").won()


async def test_who_loses_its_connection_loses_the_election(
    dsn: str, connection: AsyncpgConnection
) -> None:
    async with line_named(dsn, "first") as first, line_named(dsn, "second") as second:
        incumbent, challenger = Election(first, "stager"), Election(second, "stager")
        assert await incumbent.won()
        assert not await challenger.won()
        (pid,) = await processes_named(connection, "coatcheck first")
        await terminate(connection, pid)
        await eventually_async(challenger.won, "the challenger wins")

        async def incumbent_knows() -> bool:
            try:
                return not await incumbent.won()
            except OutcomeUnknown:  # its first look finds the connection broken
                return False

        await eventually_async(incumbent_knows, "the incumbent knows that it has lost")


async def test_upkeep_that_falls_silent_loses_its_elections(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process that is frozen does, whose session lives on and would keep its locks."""
    monkeypatch.setattr(election, "SILENT_SECONDS_MAX", 1.0)
    settings = Settings(database_url=dsn, blob_url=tmp_path.as_uri(), temp_dir=tmp_path)
    frozen = maintenance(settings)
    incumbent = frozen.loops[0]
    assert await incumbent.election.won()
    async with line_named(dsn, "second") as second:
        challenger = Election(second, incumbent.name)
        await eventually_async(challenger.won, "the challenger wins")
    await frozen.stop()


async def test_upkeep_that_falls_silent_in_the_middle_of_a_statement_loses_its_elections(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was prepared and not executed yet: the session is not idle, and stays so."""
    monkeypatch.setattr(election, "STATEMENT_SECONDS_MAX", 1.0)
    settings = Settings(database_url=dsn, blob_url=tmp_path.as_uri(), temp_dir=tmp_path)
    async with Database.of_worker(dsn) as database, line_named(dsn, "second") as second:
        frozen = MaintenanceRunner(settings, PRODUCTS.maintenance(), database=database)
        incumbent = frozen.loops[0]
        assert await incumbent.election.won()
        await database.maintenance.run(lambda it: it.prepare("SELECT 'not executed'"))
        challenger = Election(second, incumbent.name)
        await eventually_async(challenger.won, "the challenger wins")
        await frozen.stop()


async def test_who_is_elected_for_remote_work_shares_the_session_of_the_other_elections(
    dsn: str, connection: AsyncpgConnection, tmp_path: Path
) -> None:
    """It rests for long between two looks; the other loops of the process keep the session alive,
    and it is lost with them."""
    settings = Settings(database_url=dsn, blob_url=tmp_path.as_uri(), temp_dir=tmp_path)
    async with Database.of_worker(dsn) as database:
        executor = RemoteExecutor(settings, PRODUCTS, database)
        upkeep = MaintenanceRunner(settings, PRODUCTS.maintenance(), database=database)
        for loop in (executor.loops[-1], upkeep.loops[0]):
            assert await loop.election.won()
        holders = await connection.fetch(
            "SELECT a.application_name, count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a"
            " USING (pid) WHERE l.locktype = 'advisory' AND a.datname = current_database()"
            " GROUP BY a.pid, 1"
        )
        assert [tuple(row) for row in holders] == [("coatcheck maintenance", 2)]
        (ends,) = await database.maintenance.fetch("SHOW idle_session_timeout")
        assert ends[0] == "10s"
