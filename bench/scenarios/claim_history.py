"""Scenario 7: what a claim costs with a long history, against an empty table.

Only for a contender whose client has `claim_cost` (see `contenders.contract.ClaimCostClient`).
"""

from dataclasses import dataclass

from bench.client_process import ClientProcess
from bench.scenarios.context import Context
from bench.stores import Store


@dataclass(frozen=True)
class ClaimCosts:
    """Microseconds per claimed job, on the same machine minutes apart at most."""

    empty: float
    with_history: float


async def claim_history(context: Context) -> ClaimCosts:
    client, stores = context.client, context.stores
    async with stores.fresh(context.contender) as store:
        empty = await _claim_cost(client, store)
    async with stores.with_history(client, context.sizes.finished_rows) as store:
        with_history = await _claim_cost(client, store)
    return ClaimCosts(empty, with_history)


async def _claim_cost(client: ClientProcess, store: Store) -> float:
    await client.open(store.address)
    cost = await client.claim_cost()
    await client.close()
    return cost
