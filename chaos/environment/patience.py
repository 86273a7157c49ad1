"""Waiting for slow events: processes that start, leases that expire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from tests.waiting import eventually_async

PATIENCE_SECONDS: Final = 240.0
"""Reached by a broken program only, also on a machine that does other things at the same time."""


async def until(condition: Callable[[], Awaitable[Any]], what: str) -> Any:
    """The first truthy answer of ``condition``."""
    return await eventually_async(condition, what, PATIENCE_SECONDS)
