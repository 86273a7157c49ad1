"""Two statements that meet on a row: the one holds it, uncommitted, while the other waits for it.

Whoever comes second must find things as the first has left them. So a meeting has one right
outcome, that of one after the other, and the oracle knows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

import asyncpg

from coatcheck.db.connection import Connection, RawConnection
from tests.properties.stepped_deployment import SteppedDeployment

First = TypeVar("First")
Second = TypeVar("Second")

_LOOK_SECONDS: Final = 0.001


class _InTransaction:
    """What a line is to its user, on a connection whose transaction somebody else ends."""

    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection

    async def fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        return await self._connection.fetch(query, *arguments)


async def meet(
    deployment: SteppedDeployment,
    first: Callable[[Connection], Awaitable[First]],
    second: Callable[[Connection], Awaitable[Second]],
) -> tuple[First, Second]:
    """Begin the first, let the second run into it, and let the first go. What both came to."""
    (waiter,) = await deployment.line.fetch("SELECT pg_backend_pid() AS pid")
    async with deployment.connection.transaction():
        begun = await first(cast("Connection", _InTransaction(deployment.connection)))
        coming = asyncio.ensure_future(second(deployment.line))
        while not coming.done() and not await _waits(deployment.connection, waiter["pid"]):
            await asyncio.sleep(_LOOK_SECONDS)
    return begun, await coming


async def _waits(connection: RawConnection, pid: int) -> bool:
    waits: bool = await connection.fetchval(
        "SELECT pg_backend_pid() = ANY (pg_blocking_pids($1))", pid
    )
    return waits
