"""Two worker processes drain the queue; timed like the scenario `drain2`.

The clock starts when every worker has run its first job. It stops at the end of the last job, as
the database has it: at this size, asking again and again whether any is left would cost too much.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import asyncpg

from bench.batches.amounts import WORKERS
from bench.http.servers import ControlPlane, worker
from bench.processes import Child, Processes
from bench.recorder import Progress
from bench.scenarios.drain import WATCH_SECONDS, Watch
from bench.scenarios.enqueue import LostJobsError


@dataclass(frozen=True)
class Drained:
    jobs: int
    seconds: float
    ended_at: datetime

    @property
    def per_second(self) -> float:
        return self.jobs / self.seconds


@asynccontextmanager
async def two_workers(
    plane: ControlPlane, processes: Processes, folder: Path
) -> AsyncIterator[tuple[list[Child], Progress]]:
    """Workers of the no-op service, and the counters of their handlers."""
    progress = Progress(folder, WORKERS, record_starts=False)
    try:
        async with AsyncExitStack() as running:
            children = [
                await running.enter_async_context(
                    worker(plane, processes, progress.environment(slot))
                )
                for slot in range(WORKERS)
            ]
            yield children, progress
    finally:
        progress.close()


async def time_drain(
    address: str,
    children: list[Child],
    progress: Progress,
    jobs: int,
    condition: str,
    meanwhile: Callable[[Callable[[], int]], Awaitable[int]] | None = None,
) -> Drained:
    """Waits until the ``jobs`` that fulfil ``condition`` have ended.

    ``meanwhile`` gets the number of handlers that have run, and returns the number of jobs it
    added.
    """
    watch = Watch(progress, children)
    await watch.until(lambda counts: min(counts) > 0)
    begun, before = time.time(), sum(progress.counts())
    added = 0
    if meanwhile is not None:
        added = await meanwhile(lambda: sum(progress.counts()))
    await watch.until(lambda counts: sum(counts) >= jobs + added)
    connection = await asyncpg.connect(address)
    try:
        ended = (
            f"SELECT count(*), max(finished_at) FROM jobs WHERE state = 'completed' AND {condition}"
        )
        while True:
            completed, ended_at = (await connection.fetch(ended))[0]
            if completed >= jobs:
                break
            watch.check()
            await asyncio.sleep(WATCH_SECONDS)
    finally:
        await connection.close()
    if completed != jobs:
        raise LostJobsError(jobs, completed)
    return Drained(jobs - before, ended_at.timestamp() - begun, ended_at)
