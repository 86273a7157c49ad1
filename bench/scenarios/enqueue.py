"""Scenario 1: single submits, 64 in flight, each awaited until the store has accepted it."""

from bench.scenarios.context import Context
from bench.sizes import IN_FLIGHT


async def enqueue_in_flight(context: Context) -> float:
    """Accepted jobs per second. Checks that the store really holds every accepted job."""
    async with context.stores.fresh(context.contender) as store:
        await context.client.open(store.address)
        # Connections are opened and statements prepared on first use: not what is measured here.
        warm_up = await context.client.enqueue_concurrently(
            IN_FLIGHT, context.sizes.enqueue_warm_up_seconds
        )
        enqueued = await context.client.enqueue_concurrently(
            IN_FLIGHT, context.sizes.enqueue_seconds
        )
        stored = await context.client.unfinished()
        await context.client.close()
    if stored != warm_up.jobs + enqueued.jobs:
        raise LostJobsError(warm_up.jobs + enqueued.jobs, stored)
    return enqueued.jobs / enqueued.seconds


class LostJobsError(RuntimeError):
    """A store holds another number of jobs than it accepted."""

    def __init__(self, accepted: int, stored: int) -> None:
        super().__init__(f"{accepted:,} jobs were accepted but the store holds {stored:,}")
