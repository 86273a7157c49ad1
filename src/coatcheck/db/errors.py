"""Classifies driver errors: is PostgreSQL unavailable, and is the outcome known?

A statement that never reached the server did nothing (``DatabaseUnavailable``). One that was in
flight when its connection broke may have been committed (``OutcomeUnknown``): its sender must be
able to send it again, or to ask.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import asyncpg

from coatcheck.domain.errors import CoatcheckError, DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.retry import DATABASE_ATTEMPTS, DATABASE_BACKOFF

Result = TypeVar("Result")

_SERVER_SAYS_NOTHING_WAS_DONE = (
    asyncpg.CannotConnectNowError,  # 57P03 starting up or shutting down
    asyncpg.TooManyConnectionsError,  # 53300
    asyncpg.DiskFullError,  # 53100
    asyncpg.OutOfMemoryError,  # 53200
    asyncpg.SerializationError,  # 40001
    asyncpg.DeadlockDetectedError,  # 40P01
    asyncpg.ReadOnlySQLTransactionError,  # 25006 a standby, or a primary that was demoted
    asyncpg.InvalidCachedStatementError,  # the schema changed under a prepared statement
)
_CONNECTION_BROKE = (
    asyncpg.PostgresConnectionError,  # 08xxx
    asyncpg.AdminShutdownError,  # 57P01
    asyncpg.CrashShutdownError,  # 57P02
    asyncpg.IdleSessionTimeoutError,  # 57P05 this process was frozen for a while
    asyncpg.IdleInTransactionSessionTimeoutError,  # 25P03 the same, inside a transaction
    asyncpg.TransactionTimeoutError,  # 25P04 the same, inside a statement
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
    asyncio.IncompleteReadError,
)


def translate(error: Exception, *, in_flight: bool) -> CoatcheckError | None:
    """What a driver error means to a caller, or None if it is not about availability."""
    if isinstance(error, _SERVER_SAYS_NOTHING_WAS_DONE):
        return DatabaseUnavailable(f"PostgreSQL refused: {type(error).__name__}")
    if isinstance(error, _CONNECTION_BROKE):
        if in_flight:
            return OutcomeUnknown(f"the connection to PostgreSQL broke: {type(error).__name__}")
        return DatabaseUnavailable(f"PostgreSQL cannot be reached: {type(error).__name__}")
    return None


@asynccontextmanager
async def translated(*, in_flight: bool = True) -> AsyncIterator[None]:
    """Raise the driver's errors inside as Coatcheck's."""
    try:
        yield
    except Exception as error:
        known = translate(error, in_flight=in_flight)
        if known is None:
            raise
        raise known from error


async def retried(operation: Callable[[], Awaitable[Result]]) -> Result:
    """Run an operation that may safely run twice, and repeat it for a few seconds while PostgreSQL
    is unavailable.

    Raises ``OutcomeUnknown`` if any of the attempts may have taken effect.
    """
    failed: CoatcheckError = DatabaseUnavailable("not tried")
    for attempt in range(DATABASE_ATTEMPTS):
        try:
            return await operation()
        except OutcomeUnknown as error:
            failed = error
        except DatabaseUnavailable as error:
            if not isinstance(failed, OutcomeUnknown):
                failed = error
        if attempt + 1 < DATABASE_ATTEMPTS:
            await asyncio.sleep(DATABASE_BACKOFF.delay(attempt, random.random()))
    raise failed
