"""The two ways of submitting that all asyncio contenders share."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable

from bench.contenders.contract import Enqueued


async def concurrently(
    submit: Callable[[int], Awaitable[object]], in_flight: int, seconds: float
) -> Enqueued:
    """Runs `in_flight` submitters, each awaiting its job's acceptance before the next."""
    numbers = itertools.count()
    accepted = 0
    start = time.perf_counter()
    deadline = start + seconds

    async def submitter() -> None:
        nonlocal accepted
        while time.perf_counter() < deadline:
            await submit(next(numbers))
            accepted += 1

    await asyncio.gather(*(submitter() for _ in range(in_flight)))
    return Enqueued(accepted, time.perf_counter() - start)


async def in_chunks(
    submit_chunk: Callable[[range], Awaitable[object]],
    jobs: int,
    chunk: int,
    seconds_max: float,
) -> Enqueued:
    """Submits `jobs` in chunks, one after the other, until all are in or the time is up."""
    accepted = 0
    start = time.perf_counter()
    while accepted < jobs and time.perf_counter() - start < seconds_max:
        numbers = range(accepted, min(accepted + chunk, jobs))
        await submit_chunk(numbers)
        accepted = numbers.stop
    return Enqueued(accepted, time.perf_counter() - start)
