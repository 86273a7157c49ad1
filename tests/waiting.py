"""Waiting for conditions, with a limit that only a broken program reaches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

LIMIT_SECONDS = 60.0
LOOK_SECONDS = 0.02


def eventually(condition: Callable[[], Any], what: str, limit: float = LIMIT_SECONDS) -> Any:
    """The first truthy answer of ``condition``; fails if there is none within ``limit``."""
    deadline = time.monotonic() + limit
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit:g} s: {what}")
        time.sleep(LOOK_SECONDS)


async def eventually_async(
    condition: Callable[[], Awaitable[Any]], what: str, limit: float = LIMIT_SECONDS
) -> Any:
    """As ``eventually``, for a coroutine function."""
    deadline = time.monotonic() + limit
    while True:
        answer = await condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit:g} s: {what}")
        await asyncio.sleep(LOOK_SECONDS)


async def until_true(condition: Callable[[], bool], what: str) -> None:
    """As ``eventually_async``, for something of this process."""

    async def look() -> bool:
        return condition()

    await eventually_async(look, what)
