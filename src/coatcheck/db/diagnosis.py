"""Checks a database for ``coatcheck doctor``, one question at a time, each with its own answer; and
at the start of a process that connections keep their PostgreSQL sessions.

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

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import asyncpg

from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.errors import translate, translated
from coatcheck.db.migrate import check_schema
from coatcheck.domain.errors import CoatcheckError, DatabaseUnavailable, SessionsNotKept

_BACKEND: Final = "SELECT pg_backend_pid()"
_SESSION_SECONDS_MAX: Final = 10.0
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
            first, second = [await _connect_apart(db, closing) for _ in range(2)]
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


async def _connect_apart(db: Connection, closing: AsyncExitStack) -> RawConnection:
    async with translated(in_flight=False):
        connection: RawConnection = await asyncpg.connect(
            db.database_url,
            timeout=_SESSION_SECONDS_MAX,
            command_timeout=_SESSION_SECONDS_MAX,
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


VERSION_MIN: Final = 18

_CONNECT_SECONDS_MAX: Final = 5.0
_NOTIFICATION_SECONDS_MAX: Final = 3.0
_CLOCK_SAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Which PostgreSQL answered, and whether it takes writes."""

    version: str
    major: int
    read_only: bool


class DatabaseRefused(CoatcheckError):
    """The server answers, but not to us; the text says why."""

    code = "database_refused"


def explain(error: BaseException) -> str | None:
    """What a driver error means to the user of a command, or None if it is not a driver error."""
    match error:
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            return "PostgreSQL refuses this user or password"
        case asyncpg.InvalidCatalogNameError():
            return f"PostgreSQL answers, but the {error.args[0]}"
        case asyncpg.InsufficientPrivilegeError():
            return f"PostgreSQL does not let this user do that: {error.args[0]}"
        case asyncpg.ClientConfigurationError():
            return f"the database URL cannot be used: {error.args[0]}"
        case asyncpg.PostgresError():
            return f"PostgreSQL says: {error.args[0]}"
        case _:
            return None


class Diagnosis:
    """Asks questions of one database, over two connections."""

    def __init__(self, first: RawConnection, second: RawConnection) -> None:
        self._first = first
        self._second = second

    @classmethod
    @asynccontextmanager
    async def of(cls, dsn: str) -> AsyncIterator[Diagnosis]:
        """Connect twice. Raises DatabaseUnavailable or DatabaseRefused."""
        first = await _connect(dsn)
        try:
            second = await _connect(dsn)
            try:
                yield cls(first, second)
            finally:
                await second.close()
        finally:
            await first.close()

    async def server(self) -> ServerFacts:
        version = await self._first.fetchval("SHOW server_version")
        number = int(await self._first.fetchval("SHOW server_version_num"))
        read_only = await self._first.fetchval("SHOW transaction_read_only")
        return ServerFacts(version.split()[0], number // 10_000, read_only == "on")

    async def schema(self) -> str:
        """The newest schema step. Raises SchemaMismatch."""
        return await check_schema(self._first)

    async def notification_seconds(self) -> float:
        """How long a NOTIFY takes to arrive. Raises TimeoutError if none does."""
        channel = f"coatcheck_doctor_{secrets.token_hex(8)}"
        arrived = asyncio.Event()

        def hear(_connection: object, _pid: int, _channel: str, _payload: object) -> None:
            arrived.set()

        await self._first.add_listener(channel, hear)
        began = time.monotonic()
        await self._second.execute("SELECT pg_notify($1, '')", channel)
        async with asyncio.timeout(_NOTIFICATION_SECONDS_MAX):
            await arrived.wait()
        took = time.monotonic() - began
        await self._first.remove_listener(channel, hear)
        return took

    async def holds_sessions(self) -> bool:
        """Whether a connection keeps its session between transactions, as advisory locks need.

        Through a transaction pooler it may not: the lock is then taken on one session and asked
        for on another.
        """
        if not await keeps_sessions(self._first, self._second):
            return False
        key = secrets.randbits(62)
        await self._first.execute("SELECT pg_advisory_lock($1)", key)
        rival_got_it = await self._second.fetchval("SELECT pg_try_advisory_lock($1)", key)
        released = await self._first.fetchval("SELECT pg_advisory_unlock($1)", key)
        return bool(released) and not rival_got_it

    async def clock_seconds_ahead(self) -> float:
        """How far the database's clock is ahead of this machine's (behind, if negative)."""
        samples: list[tuple[float, float]] = []
        for _ in range(_CLOCK_SAMPLES):
            began, began_at = time.monotonic(), time.time()
            theirs = await self._first.fetchval("SELECT clock_timestamp()")
            took = time.monotonic() - began
            samples.append((took, theirs.timestamp() - (began_at + took / 2)))
        _, ahead = min(samples)  # the quickest answer is the least blurred one
        return ahead


async def _connect(dsn: str) -> RawConnection:
    try:
        connection: RawConnection = await asyncpg.connect(
            dsn,
            timeout=_CONNECT_SECONDS_MAX,
            statement_cache_size=0,  # so that poolers can answer, too
            server_settings={"application_name": "coatcheck doctor"},
        )
    except Exception as error:
        known = translate(error, in_flight=False)
        if known is not None:
            raise DatabaseUnavailable(_reason(error)) from error
        said = explain(error)
        if said is None:
            raise
        raise DatabaseRefused(said) from error
    return connection


def _reason(error: Exception) -> str:
    """Why nobody answered: the operating system's message, rather than the name of a class."""
    said = str(error).strip().splitlines()
    return f"PostgreSQL cannot be reached: {said[0] if said else type(error).__name__}"
