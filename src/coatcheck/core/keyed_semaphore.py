"""A semaphore per key under a common limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class KeyedSemaphore:
    """At most ``total_max`` holders, and ``per_key_max`` of each key: a slow key waits alone."""

    def __init__(self, total_max: int, per_key_max: int) -> None:
        self._all = asyncio.Semaphore(total_max)
        self._per_key_max = per_key_max
        self._queues: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @property
    def in_use(self) -> int:
        """How many keys are held or waited for."""
        return len(self._queues)

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """Wait for a place of ``name``, then for one in all."""
        queue, users = self._queues.get(name, (asyncio.Semaphore(self._per_key_max), 0))
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
