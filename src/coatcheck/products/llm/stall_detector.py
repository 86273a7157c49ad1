"""Tells a target that thinks from one that has fallen asleep in the middle of an answer.

A machine that goes to sleep closes no connection: it just says nothing more. So does a model that
reads a long prompt. Whoever says nothing for a while is asked, beside the answer, whether it is
there at all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

DOUBT_SECONDS: Final = 60.0
_PROBES: Final = 2
"""One answer may be lost in a busy machine; two in a row are not."""


class FellAsleep(Exception):
    """The target says nothing, and answers nobody."""


class Silence:
    """When a target was last heard, and what follows from that."""

    def __init__(self, is_alive: Callable[[], Awaitable[bool]], doubt_seconds: float) -> None:
        self._is_alive = is_alive
        self._doubt_seconds = doubt_seconds
        self._heard_at = time.monotonic()

    def heard(self) -> None:
        self._heard_at = time.monotonic()

    async def unless_asleep(self, work: Coroutine[Any, Any, None]) -> None:
        """Do ``work``, for as long as the target is there. Raises FellAsleep if it is not."""
        working = asyncio.create_task(work)
        asleep = asyncio.create_task(self._asleep())
        try:
            await asyncio.wait({working, asleep}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                asleep.result()
                raise FellAsleep
            working.result()
        finally:
            for task in (working, asleep):
                task.cancel()
            await asyncio.gather(working, asleep, return_exceptions=True)

    async def _asleep(self) -> None:
        missed = 0
        while missed < _PROBES:
            silent = time.monotonic() - self._heard_at
            if silent < self._doubt_seconds:
                missed = 0
                await asyncio.sleep(self._doubt_seconds - silent)
            elif await self._is_alive():
                missed = 0
                await asyncio.sleep(self._doubt_seconds)
            else:
                missed += 1
