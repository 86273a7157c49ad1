"""Work under limits and work under none, and flows under one limit, do not starve each other."""

from __future__ import annotations

from coatcheck.core.queries.limits import set_limit
from coatcheck.domain.job import ClaimedJob, ConcurrencyLimit
from coatcheck.domain.limits import QUEUES_SCANNED_MAX
from tests.db.claimer import Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import put_flows, put_queue

DRAWS = 64
"""What is drawn by lot goes to one of two in so many draws, but for one chance in 2**64."""


async def test_blocked_flows_do_not_hide_the_work_behind_them(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """More flows than one claim looks at, all blocked, come before the only one that is free."""
    await put_flows(connection, 2 * QUEUES_SCANNED_MAX, jobs_each=1, org="blocked")
    await put_queue(connection, 1, org="free")
    await set_limit(worker.line, ConcurrencyLimit("blocked", "org", "", 0))
    claimed = [job.org for _ in range(3) for job in await claim_both(worker)]
    assert claimed == ["free"]


async def test_free_flows_do_not_hide_the_limited_work_behind_them(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_flows(connection, 2 * QUEUES_SCANNED_MAX, jobs_each=1, org="free")
    await put_queue(connection, 1, org="limited")
    await set_limit(worker.line, ConcurrencyLimit("limited", "org", "", 1))
    claimed = [job.org for _ in range(3) for job in await worker.claim_limited(10)]
    assert claimed == ["limited"]


async def test_limited_flows_behind_blocked_ones_are_found(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_flows(connection, 2 * QUEUES_SCANNED_MAX, jobs_each=1, org="blocked")
    await put_queue(connection, 1, org="limited")
    await set_limit(worker.line, ConcurrencyLimit("blocked", "org", "", 0))
    await set_limit(worker.line, ConcurrencyLimit("limited", "org", "", 1))
    claimed = [job.org for _ in range(3) for job in await worker.claim_limited(10)]
    assert claimed == ["limited"]


async def test_a_few_blocked_flows_cost_the_others_no_turn(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """With room for one, a scan goes past what is blocked and takes the next."""
    await put_flows(connection, 50, jobs_each=5, org="blocked")
    await put_flows(connection, 5, jobs_each=5, org="free")
    await set_limit(worker.line, ConcurrencyLimit("blocked", "org", "", 0))
    flows = [job.queue_key for _ in range(5) for job in await worker.claim(1)]
    assert len(set(flows)) == 5


async def test_flows_under_one_limit_all_get_permits(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for flow in ("first", "second", "third"):
        await put_queue(connection, 2 * DRAWS, org="a", flow=flow)
    await set_limit(worker.line, ConcurrencyLimit("a", "org", "", 1))
    assert await flows_served(worker, rounds=2 * DRAWS) == {"first", "second", "third"}


async def test_a_limit_of_others_does_not_take_a_flow_s_turn(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """Permits of two limits come back by turns; a cursor over both would always come to rest
    before the same flow."""
    await put_queue(connection, 2 * DRAWS, org="a", flow="first")
    await put_queue(connection, 2 * DRAWS, org="a", flow="second")
    await put_queue(connection, 2 * DRAWS, org="b", flow="third")
    await set_limit(worker.line, ConcurrencyLimit("a", "org", "", 1))
    await set_limit(worker.line, ConcurrencyLimit("b", "org", "", 1))
    assert await flows_served(worker, rounds=DRAWS) == {"first", "second", "third"}


async def test_a_scarce_permit_is_always_used(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """Whoever comes first is within every limit, so a pass with a free permit takes a job."""
    for number in range(30):
        await put_queue(connection, 3, org="a", flow=f"flow {number}")
        await set_limit(worker.line, ConcurrencyLimit("a", "flow", f"flow {number}", number % 2))
    await set_limit(worker.line, ConcurrencyLimit("a", "org", "", 12))
    taken = 0
    while claimed := await worker.claim_limited(4):
        taken += len(claimed)
    assert taken == 12


async def test_of_reserved_slots_each_organisation_that_holds_none_gets_one(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for org in ("holder", "a", "b"):
        for flow in ("first", "second"):
            await put_queue(connection, 5, org=org, flow=flow)
        await set_limit(worker.line, ConcurrencyLimit(org, "org", "", 9))
    claimed = await worker.claim_limited(4, holders=["holder"])
    assert sorted(job.org for job in claimed) == ["a", "b"]


async def claim_both(worker: Claimer) -> list[ClaimedJob]:
    return await worker.claim(10) + await worker.claim_limited(10)


async def flows_served(worker: Claimer, rounds: int) -> set[str]:
    """The flows that were given a job while each job ends before the next claim, one at a time."""
    served = set()
    held: list[ClaimedJob] = []
    for _ in range(rounds):
        held += await worker.claim_limited(10)
        served |= {job.queue_key for job in held}
        await worker.complete(held.pop(0))
    return served
