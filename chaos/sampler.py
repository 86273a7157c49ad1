"""Records the database's backlog once a second, while the database responds."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import asyncpg

from chaos.history import History

EVERY_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 2.0
_AWAY: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # errors of a connection that breaks
)

_SAMPLE = """
SELECT (SELECT count(*) FROM jobs WHERE state = 'queued') AS queued,
       (SELECT count(*) FROM held_jobs) AS held,
       (SELECT count(*) FROM postponed) AS postponed,
       (SELECT count(*) FROM webhook_deliveries WHERE status = 'pending') AS untold
"""
"""Each count uses an index with only these rows: a long history costs nothing."""


class Sampler:
    """A context manager, around the load. ``dsn`` is the database without a proxy."""

    def __init__(self, dsn: str, history: History) -> None:
        self._dsn = dsn
        self._history = history
        self._task: asyncio.Task[None] | None = None
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="sampler")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._connection is not None:
            self._connection.terminate()

    async def _run(self) -> None:
        while True:
            await self.sample()
            await asyncio.sleep(EVERY_SECONDS)

    async def sample(self) -> None:
        """Record the backlog, or that the database does not answer."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                if self._connection is None or self._connection.is_closed():
                    self._connection = await asyncpg.connect(self._dsn)
                (row,) = await self._connection.fetch(_SAMPLE)
        except _AWAY:
            if self._connection is not None:
                self._connection.terminate()
                self._connection = None
            self._history.note("sample", source="database", reachable=False)
            return
        self._history.note("sample", source="database", reachable=True, **dict(row))
