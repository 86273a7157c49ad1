"""Of many processes that want to do a named thing, one is elected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path

import pytest

from coatcheck.db import election
from coatcheck.db.connection import Connection
from coatcheck.db.election import Election
from coatcheck.domain.errors import OutcomeUnknown
from coatcheck.hosting.working import RemoteExecutor
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
    monkeypatch.setattr(election, "_SILENT_SECONDS_MAX", 1.0)
    settings = Settings(database_url=dsn, blob_url=tmp_path.as_uri(), temp_dir=tmp_path)
    frozen = maintenance(settings)
    incumbent = frozen.loops[0]
    assert await incumbent._election.won()
    async with line_named(dsn, "second") as second:
        challenger = Election(second, incumbent.name)
        await eventually_async(challenger.won, "the challenger wins")
    await frozen.stop()


async def test_upkeep_that_falls_silent_in_the_middle_of_a_statement_loses_its_elections(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was prepared and not executed yet: the session is not idle, and stays so."""
    monkeypatch.setattr(election, "_STATEMENT_SECONDS_MAX", 1.0)
    settings = Settings(database_url=dsn, blob_url=tmp_path.as_uri(), temp_dir=tmp_path)
    frozen = maintenance(settings)
    incumbent = frozen.loops[0]
    assert await incumbent._election.won()
    await incumbent._db.run(lambda connection: connection.prepare("SELECT 'not executed'"))
    async with line_named(dsn, "second") as second:
        challenger = Election(second, incumbent.name)
        await eventually_async(challenger.won, "the challenger wins")
    await frozen.stop()


async def test_who_is_elected_for_remote_work_is_heard_of_and_would_lose_it_if_it_was_not(
    dsn: str, connection: AsyncpgConnection, tmp_path: Path
) -> None:
    """It rests for longer between two looks than the rest of upkeep, on a line of its own."""
    settings = Settings(database_url=dsn, blob_url=tmp_path.as_uri(), temp_dir=tmp_path)
    executor = RemoteExecutor(settings, PRODUCTS)
    keeper = executor._loops[-1]

    async def last_heard_of() -> datetime:
        heard: datetime = await connection.fetchval(
            "SELECT state_change FROM pg_stat_activity"
            " WHERE application_name = 'coatcheck poller' AND datname = current_database()"
        )
        return heard

    assert await keeper._election.won()
    ends = await executor._db.fetch("SELECT current_setting('idle_session_timeout') AS after")
    assert ends[0]["after"] == "30s"
    before = await last_heard_of()
    assert await keeper._election.won()
    assert await last_heard_of() > before
    await executor._db.close()
