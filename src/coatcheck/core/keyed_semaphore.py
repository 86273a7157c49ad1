"""Turns at something that only so many may do at once, and only so many of one organisation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class KeyedSemaphore:
    """So many at once in all, and so many of each: one who is slow waits for its own."""

    def __init__(self, at_once: int, of_one: int) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._of_one = of_one
        self._queues: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Wait for a turn of ``name``'s, then for one in all."""
        queue, users = self._queues.get(name, (asyncio.Semaphore(self._of_one), 0))
        self._queues[name] = queue, users + 1
        try:
            async with queue, self._all:
                yield
        finally:
            queue, users = self._queues[name]
            if users == 1:
                del self._queues[name]
            else:
                self._queues[name] = queue, users - 1
