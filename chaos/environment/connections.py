"""Takes all connections of PostgreSQL, and releases them."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import asyncpg


class Crowd:
    """Idle connections. A context manager, which closes them."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connections: list[asyncpg.Connection[asyncpg.Record]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    async def fill(self) -> int:
        """Connect until PostgreSQL refuses; returns the number of connections."""
        try:
            while True:
                self._connections.append(await asyncpg.connect(self._dsn))
        except asyncpg.TooManyConnectionsError:
            return len(self._connections)

    def leave(self) -> None:
        for connection in self._connections:
            connection.terminate()
        self._connections.clear()
