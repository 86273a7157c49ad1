"""Waiting for slow events: processes that start, leases that expire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from tests.waiting import eventually_async

WAIT_SECONDS_MAX: Final = 240.0
"""Only a broken program reaches it, even on a busy machine."""


async def until(condition: Callable[[], Awaitable[Any]], what: str) -> Any:
    """The first truthy result of ``condition``."""
    return await eventually_async(condition, what, WAIT_SECONDS_MAX)
