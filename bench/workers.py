"""The worker processes of one measurement."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.contenders.contract import Contender
from bench.processes import Child, Processes
from bench.recorder import Progress


@asynccontextmanager
async def running_workers(
    contender: Contender, processes: Processes, address: str, progress: Progress, count: int
) -> AsyncIterator[list[Child]]:
    """Runs `count` of the contender's worker processes for as long as the block lasts."""
    workers: list[Child] = []
    try:
        for slot in range(count):
            worker = await processes.start(
                f"{contender.name}-worker",
                contender.worker_command,
                {**contender.worker_environment(address), **progress.environment(slot)},
            )
            # One by one: those already running are stopped if the next one cannot be started.
            workers.append(worker)
        yield workers
    finally:
        for worker in workers:
            await processes.stop(worker)
