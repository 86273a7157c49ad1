"""Scenarios 5 and 6: an idle worker and ten jobs a second.

Start latency runs from just before the submit call to the handler's first line. The waiting
client's latency runs from just before the submit call until the contender's own wait API has
returned. Both are taken with CLOCK_MONOTONIC, which all processes of a machine share. One worker
process serves both, after a few jobs to warm it up.
"""

import asyncio
import time
from dataclasses import dataclass

from bench.contenders.contract import Ability
from bench.processes import Child
from bench.recorder import Progress
from bench.scenarios.context import Context
from bench.sizes import PACED_INTERVAL_SECONDS, PACED_WARM_UP_JOBS
from bench.workers import running_workers

NANOSECONDS_PER_MILLISECOND = 1e6
WATCH_SECONDS = 0.02
STARTED_SECONDS_MAX = 20.0


@dataclass(frozen=True)
class Latencies:
    """Milliseconds of each job; `seen` is None if the contender has no API to wait."""

    start: list[float]
    seen: list[float] | None


async def latency(context: Context) -> Latencies:
    client, jobs = context.client, context.sizes.paced_jobs
    async with context.stores.fresh(context.contender) as store:
        await client.open(store.address)
        progress = Progress(context.folder, 1, record_starts=True)
        async with running_workers(
            context.contender, context.processes, store.address, progress, 1
        ) as (worker,):
            waits = Ability.WAIT in context.contender.abilities
            await _warm_up(context, progress, worker, waits=waits)
            start = await _start_latencies(context, progress, worker, first=1_000, jobs=jobs)
            seen = await _seen_latencies(context, first=100_000, jobs=jobs) if waits else None
        progress.close()
        await client.close()
    return Latencies(start, seen)


async def _warm_up(context: Context, progress: Progress, worker: Child, *, waits: bool) -> None:
    await context.client.paced_submits(0, PACED_WARM_UP_JOBS, PACED_INTERVAL_SECONDS)
    await _all_started(progress, worker, range(PACED_WARM_UP_JOBS))
    if waits:
        await context.client.paced_waits(
            PACED_WARM_UP_JOBS, PACED_WARM_UP_JOBS, PACED_INTERVAL_SECONDS
        )


async def _start_latencies(
    context: Context, progress: Progress, worker: Child, *, first: int, jobs: int
) -> list[float]:
    calls = await context.client.paced_submits(first, jobs, PACED_INTERVAL_SECONDS)
    started = await _all_started(progress, worker, range(first, first + jobs))
    return [(started[call.number] - call.begun_ns) / NANOSECONDS_PER_MILLISECOND for call in calls]


async def _seen_latencies(context: Context, *, first: int, jobs: int) -> list[float]:
    calls = await context.client.paced_waits(first, jobs, PACED_INTERVAL_SECONDS)
    return [(call.returned_ns - call.begun_ns) / NANOSECONDS_PER_MILLISECOND for call in calls]


async def _all_started(progress: Progress, worker: Child, numbers: range) -> dict[int, int]:
    deadline = time.monotonic() + STARTED_SECONDS_MAX
    while True:
        started = progress.started_at()
        missing = [number for number in numbers if number not in started]
        if not missing:
            return started
        worker.raise_if_ended()
        if time.monotonic() > deadline:
            raise NotStartedError(
                f"{len(missing)} of {len(numbers)} jobs had not started after "
                f"{STARTED_SECONDS_MAX:.0f} s; the worker's log ends with:\n{worker.log_tail()}"
            )
        await asyncio.sleep(WATCH_SECONDS)


class NotStartedError(RuntimeError):
    """An idle worker did not take up its jobs."""
