"""Runs a coroutine that stops as soon as its job is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from coatcheck.domain.errors import JobCancelled
from coatcheck.job import Job

Value = TypeVar("Value")


async def unless_cancelled(job: Job, work: Coroutine[Any, Any, Value]) -> Value:
    """Await ``work``, and stop it as soon as the job is cancelled. Raises JobCancelled then."""
    working = asyncio.create_task(work)
    cancelled = asyncio.create_task(job.wait_cancelled())
    try:
        await asyncio.wait({working, cancelled}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise JobCancelled
        return working.result()
    finally:
        for task in (working, cancelled):
            task.cancel()
        await asyncio.gather(working, cancelled, return_exceptions=True)
