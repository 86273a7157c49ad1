"""Checks that connections keep their PostgreSQL sessions, before anything relies on it.

LISTEN, the advisory locks of elections, prepared statements and pinned plans all belong to a
session. A pooler in session mode gives a connection one session for its life. In transaction mode
it lends another session to every transaction, in statement mode to every statement: then
notifications never arrive, two processes are elected, and settings land in other clients' sessions.
Nothing fails at once, so this is checked at the start.

A single connection shows whether there is a pooler: a pooler has to answer the login before it has
a session, so the process number that it gives the client is not one of PostgreSQL's. To find its
mode takes two connections, which must then have a session each.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final

import asyncpg

from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.errors import translated
from coatcheck.domain.errors import SessionsNotKept

_BACKEND: Final = "SELECT pg_backend_pid()"
_CONNECT_SECONDS_MAX: Final = 10.0
_ROUNDS: Final = 3
"""Other clients of the pooler may hide its mode from a check, but hardly from several."""

_SAID_BY_ANOTHER_SESSION: Final = (
    asyncpg.DuplicatePreparedStatementError,  # 42P05 prepared there by another client
    asyncpg.InvalidSQLStatementNameError,  # 26000 prepared by us, in another session
)
_STATEMENT_MODE: Final = "statement pooling mode"
"""PgBouncer's error for a BEGIN in that mode, before it disconnects."""


async def require_sessions(db: Connection) -> None:
    """Raise SessionsNotKept if ``db`` goes through a pooler that does not keep sessions."""
    try:
        if await db.run(is_direct):
            return
        async with AsyncExitStack() as closing:
            first, second = [await _connect(db, closing) for _ in range(2)]
            async with translated():
                kept = await keeps_sessions(first, second)
    except _SAID_BY_ANOTHER_SESSION as error:
        raise _refusal() from error
    if not kept:
        raise _refusal()


async def keeps_sessions(first: RawConnection, second: RawConnection) -> bool:
    """Whether two connections, made without a statement cache, have a session each."""
    try:
        for _ in range(_ROUNDS):
            own = await first.fetchval(_BACKEND)
            if own != await first.fetchval(_BACKEND):  # a pooler that rotates sessions
                return False
            async with second.transaction():  # a pooler that reuses the last session
                if own == await second.fetchval(_BACKEND):
                    return False
                if own != await first.fetchval(_BACKEND):
                    return False
    except _SAID_BY_ANOTHER_SESSION:
        return False
    except asyncpg.PostgresConnectionError as error:
        if _STATEMENT_MODE not in str(error):
            raise
        return False
    return True


async def is_direct(connection: RawConnection) -> bool:
    reported: int = await connection.fetchval(_BACKEND)
    return reported == connection.get_server_pid()


async def _connect(db: Connection, closing: AsyncExitStack) -> RawConnection:
    async with translated(in_flight=False):
        connection: RawConnection = await asyncpg.connect(
            db.database_url,
            timeout=_CONNECT_SECONDS_MAX,
            command_timeout=_CONNECT_SECONDS_MAX,
            statement_cache_size=0,
            server_settings={"application_name": "coatcheck session check"},
        )
    closing.callback(connection.terminate)
    return connection


def _refusal() -> SessionsNotKept:
    return SessionsNotKept(
        "COATCHECK_DATABASE_URL leads through a pooler that does not keep sessions\n"
        "Connect to PostgreSQL directly, or through a pooler in session mode: LISTEN, advisory "
        "locks and prepared statements do not survive transaction or statement mode."
    )
