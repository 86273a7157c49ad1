"""Scenarios 3 and 4: how fast worker processes empty a loaded queue.

The clock starts when every worker process has run at least one job, so that booting is not counted,
and stops when the contender's own store shows no unfinished job, so that finishing is. Only the
jobs in between count. Handlers are counted in shared memory (`bench.recorder`); the store is asked
only once the handlers have run that often, so that watching costs the same for all: nothing. The
CPU time of all processes is read before the clock starts and after it has stopped.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.contenders.contract import Kept
from bench.job_cost import JobCost, Reading, ServerMeter
from bench.processes import Child
from bench.recorder import Progress
from bench.scenarios.context import Context
from bench.scenarios.enqueue import LostJobsError
from bench.workers import running_workers

WATCH_SECONDS = 0.005
STALLED_SECONDS = 30.0
PRELOAD_SECONDS_MAX = 60.0
# The share of the preloaded jobs that may be gone before the last worker process has booted.
UNTIMED_SHARE_MAX = 0.5


@dataclass(frozen=True)
class Drained:
    """One drain's timed part."""

    jobs: int
    seconds: float
    kept: Kept
    cost: JobCost

    @property
    def per_second(self) -> float:
        return self.jobs / self.seconds


async def drain(context: Context, workers: int) -> Drained:
    """Loads a queue and drains it; once more, with more jobs, if it was over too soon to time."""
    guess = context.drain_rates.get(workers, context.contender.drain_guess_per_second * workers)
    drained = await _drain_once(context, workers, _jobs_for(context, guess))
    if drained.seconds < context.sizes.drain_seconds_min:
        drained = await _drain_once(context, workers, _jobs_for(context, drained.per_second))
    context.drain_rates[workers] = drained.per_second
    return drained


def _jobs_for(context: Context, per_second: float) -> int:
    wanted = int(per_second * context.sizes.drain_seconds_aim)
    return min(wanted, context.sizes.drain_jobs_max)


async def _drain_once(context: Context, workers: int, jobs: int) -> Drained:
    client, contender = context.client, context.contender
    async with context.stores.fresh(contender) as store:
        await client.open(store.address)
        loaded = await client.enqueue_bulk(jobs, PRELOAD_SECONDS_MAX)
        await store.settle()
        progress = Progress(context.folder, workers, record_starts=False)
        async with (
            store.meter() as meter,
            running_workers(
                contender, context.processes, store.worker_address, progress, workers
            ) as children,
        ):
            drained = await _time_drain(context, progress, children, meter, loaded.jobs)
        progress.close()
        await client.close()
    if drained.jobs < loaded.jobs * (1 - UNTIMED_SHARE_MAX):
        raise StalledError(
            f"only {drained.jobs:,} of {loaded.jobs:,} jobs were left when the last of "
            f"{workers} worker processes ran its first"
        )
    return drained


async def _time_drain(
    context: Context, progress: Progress, children: list[Child], meter: ServerMeter, jobs: int
) -> Drained:
    watch = Watch(progress, children)
    await watch.until(lambda counts: min(counts) > 0)
    uncounted = sum(progress.counts())
    reading = await Reading.take(children, meter)
    start, before = time.perf_counter(), sum(progress.counts())
    await watch.until(lambda counts: sum(counts) >= jobs)
    while await context.client.unfinished() > 0:
        watch.check()
        await asyncio.sleep(WATCH_SECONDS)
    seconds = time.perf_counter() - start
    cost = (await Reading.take(children, meter)).cost_since(reading, jobs - uncounted)
    kept = await context.client.kept()
    if kept.records not in (0, jobs):
        raise LostJobsError(jobs, kept.records)
    return Drained(jobs - before, seconds, kept, cost)


class Watch:
    """Looks at the workers' counters until something is true, or until nothing moves any more."""

    def __init__(self, progress: Progress, children: list[Child]) -> None:
        self._progress = progress
        self._children = children
        self._last: list[int] = []
        self._moved = time.monotonic()

    async def until(self, reached: Callable[[list[int]], bool]) -> None:
        while not reached(self._progress.counts()):
            self.check()
            await asyncio.sleep(WATCH_SECONDS)

    def check(self) -> None:
        for child in self._children:
            child.raise_if_ended()
        counts = self._progress.counts()
        if counts != self._last:
            self._last, self._moved = counts, time.monotonic()
        elif time.monotonic() - self._moved > STALLED_SECONDS:
            logs = "\n".join(child.log_tail() for child in self._children)
            raise StalledError(
                f"no job ran for {STALLED_SECONDS:.0f} s, handlers so far {counts}; logs:\n{logs}"
            )


class StalledError(RuntimeError):
    """A drain did not go on, or could not be timed."""
