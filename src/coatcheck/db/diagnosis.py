"""Checks a database for ``coatcheck doctor``: one question at a time, each with its own answer."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import asyncpg

from coatcheck.db.connection import RawConnection
from coatcheck.db.errors import translate
from coatcheck.db.migrate import check_schema
from coatcheck.db.sessions import keeps_sessions
from coatcheck.domain.errors import CoatcheckError, DatabaseUnavailable

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
