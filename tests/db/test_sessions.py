"""Connections through a pooler that does not keep sessions are refused; the others are let through.

Here sessions are shared by hand; `chaos/environment/test_pooler.py` has real poolers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from coatcheck import Engine
from coatcheck.db import diagnosis
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.diagnosis import keeps_sessions, require_sessions
from coatcheck.domain.errors import SessionsNotKept, SettingsInvalid
from tests.db.edge_guard import AsyncpgConnection


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="tests", server_settings=PINNED_PLANS)
    yield opened
    await opened.close()


@pytest.fixture
async def pair(dsn: str) -> AsyncIterator[tuple[AsyncpgConnection, AsyncpgConnection]]:
    first, second = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    yield first, second
    await second.close()
    await first.close()


@pytest.fixture
def as_through_a_pooler(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the server's process was said to be at the login is not what it is."""

    async def no(_connection: AsyncpgConnection) -> bool:
        return False

    monkeypatch.setattr(diagnosis, "is_direct", no)


async def test_a_connection_of_its_own_is_let_through(line: Connection) -> None:
    await require_sessions(line)


async def test_a_pooler_that_keeps_sessions_is_let_through(
    line: Connection, as_through_a_pooler: None
) -> None:
    await require_sessions(line)


async def test_two_connections_that_share_a_session_are_seen(
    pair: tuple[AsyncpgConnection, AsyncpgConnection],
) -> None:
    first, second = pair
    assert await keeps_sessions(first, second)
    assert not await keeps_sessions(first, first)


class Lent:
    """A connection that is served by another session at each statement, as poolers do in turns."""

    def __init__(self, *connections: AsyncpgConnection) -> None:
        self._connections = list(connections)

    async def fetchval(self, query: str) -> object:
        self._connections.append(self._connections.pop(0))
        return await self._connections[0].fetchval(query)


async def test_a_session_that_changes_between_statements_is_seen(
    pair: tuple[AsyncpgConnection, AsyncpgConnection],
) -> None:
    first, second = pair
    assert not await keeps_sessions(Lent(first, second), second)  # type: ignore[arg-type]


async def test_what_does_not_keep_sessions_is_refused_by_an_engine_with_what_to_do(
    dsn: str, as_through_a_pooler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no(_first: AsyncpgConnection, _second: AsyncpgConnection) -> bool:
        return False

    monkeypatch.setattr(diagnosis, "keeps_sessions", no)
    with pytest.raises(
        SessionsNotKept, match=r"(?s)COATCHECK_DATABASE_URL.*session mode"
    ) as refused:
        await Engine.connect(dsn)
    assert isinstance(refused.value, SettingsInvalid)


async def test_a_line_has_its_settings_though_they_do_not_come_with_its_login(
    line: Connection,
) -> None:
    """A pooler refuses settings in a login that it does not know."""
    rows = await line.fetch(
        "SELECT name, setting, source FROM pg_settings WHERE name = ANY($1)", [*PINNED_PLANS]
    )
    assert {name: setting for name, setting, _ in rows} == dict(PINNED_PLANS)
    assert {source for _, _, source in rows} == {"session"}  # "client": with the login
    ((name,),) = await line.fetch("SHOW application_name")
    assert name == "coatcheck tests"
