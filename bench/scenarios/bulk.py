"""Scenario 2: the contender's own bulk API, in chunks of the size it is fastest with."""

from bench.scenarios.context import Context
from bench.scenarios.enqueue import LostJobsError


async def enqueue_bulk(context: Context) -> float:
    """Accepted jobs per second, over the bulk size or as much of it as fits into the time."""
    async with context.stores.fresh(context.contender) as store:
        await context.client.open(store.address)
        enqueued = await context.client.enqueue_bulk(
            context.sizes.bulk_jobs, context.sizes.bulk_seconds_max
        )
        stored = await context.client.unfinished()
        await context.client.close()
    if stored != enqueued.jobs:
        raise LostJobsError(enqueued.jobs, stored)
    return enqueued.jobs / enqueued.seconds
