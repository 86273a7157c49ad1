"""Finds out whether connections keep their sessions, before anything relies on it.

LISTEN, the advisory locks that elect who does what, prepared statements and the plans that are
pinned all belong to a session of PostgreSQL. A pooler in session mode gives a connection one
session for its life. One in transaction mode lends it another at every transaction, and one in
statement mode at every statement: then notifications never arrive, two processes are elected, and
settings land in sessions of strangers. Nothing fails at once, so it is looked for at the start.

Whether there is a pooler is seen by a single connection: it has to answer a login before it has a
session to give, so the number that it told the client then is not the one of a process of
PostgreSQL's. What kind it is takes two, which it would have to serve by sessions of their own.
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
"""Others who use the pooler at the same time may hide from us what it does, but hardly often."""

_SAID_BY_ANOTHER_SESSION: Final = (
    asyncpg.DuplicatePreparedStatementError,  # 42P05 prepared there by somebody else
    asyncpg.InvalidSQLStatementNameError,  # 26000 prepared by us, but elsewhere
)
_STATEMENT_MODE: Final = "statement pooling mode"
"""What PgBouncer says of a BEGIN in that mode, before it hangs up."""


async def require_sessions(db: Connection) -> None:
    """Raise SessionsNotKept if what ``db`` leads through lends its sessions out."""
    try:
        if await db.run(_is_direct):
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
    """Whether two connections, made without a cache of statements, have a session each."""
    try:
        for _ in range(_ROUNDS):
            own = await first.fetchval(_BACKEND)
            if own != await first.fetchval(_BACKEND):  # a pooler that takes turns
                return False
            async with second.transaction():  # one that gives away what was used last
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


async def _is_direct(connection: RawConnection) -> bool:
    told: int = await connection.fetchval(_BACKEND)
    return told == connection.get_server_pid()


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
