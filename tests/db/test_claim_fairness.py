"""Every organisation that has work gets its share, and each of its flows a part of that."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from tests.db.claimer import Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ENDPOINT, put_flows, put_queue

Turn = tuple[str, str, str]


def turn_of(job: ClaimedJob) -> Turn:
    return job.endpoint, job.org, job.queue_key


async def turns_within(worker: Claimer, room: int, claims: int) -> Counter[Turn]:
    """How many jobs each flow was given in so many claims."""
    turns: Counter[Turn] = Counter()
    for _ in range(claims):
        turns.update(map(turn_of, await worker.claim(room)))
    return turns


async def test_one_job_behind_a_hundred_thousand_is_in_the_next_claim(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 100_000, org="busy")
    await worker.claim(32)
    await put_queue(connection, 1, org="quiet")
    assert "quiet" in {job.org for job in await worker.claim(32)}


async def test_organisations_share_the_room_equally_and_then_their_flows(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 1_000, org="a")
    await put_queue(connection, 50, org="b")
    await put_queue(connection, 50, org="a", flow="batch")
    claimed = Counter(map(turn_of, await worker.claim(40)))
    assert claimed == {
        (ENDPOINT, "a", ""): 10,
        (ENDPOINT, "a", "batch"): 10,
        (ENDPOINT, "b", ""): 20,
    }


async def test_an_organisation_has_one_share_however_many_batches_it_has(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_flows(connection, 600, jobs_each=3, org="many")
    await put_queue(connection, 100, org="one")
    for _ in range(4):
        claimed = Counter(job.org for job in await worker.claim(10))
        assert claimed == {"many": 5, "one": 5}


async def test_an_organisation_has_one_share_however_many_endpoints_it_uses(
    dsn: str, connection: AsyncpgConnection
) -> None:
    endpoints = [f"demo.post__{name}" for name in ("a", "b", "c", "d")]
    for endpoint in endpoints:
        await put_queue(connection, 100, endpoint=endpoint, org="many")
    await put_queue(connection, 100, endpoint=endpoints[-1], org="one")
    async with claimer(dsn, endpoints) as worker:
        claimed = await worker.claim(16)
    assert Counter(job.org for job in claimed) == {"many": 8, "one": 8}
    assert Counter(job.endpoint for job in claimed if job.org == "many") == dict.fromkeys(
        endpoints, 2
    )


async def test_room_that_is_kept_goes_to_organisations_that_hold_none_one_job_each(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for org in ("a", "b", "c", "d"):
        await put_queue(connection, 10, org=org)
    seen: list[str] = []
    for _ in range(2):
        claimed = await worker.claim_for_newcomers(2, holders={"a", "c"})
        seen += [job.org for job in claimed]
    assert sorted(seen) == ["b", "b", "d", "d"]
    await put_queue(connection, 1, org="e")
    claimed = await worker.claim_for_newcomers(10, holders={"a", "c"})
    assert sorted(job.org for job in claimed) == ["b", "d", "e"]
    assert await worker.claim_for_newcomers(10, holders={"a", "b", "c", "d", "e"}) == []


async def test_room_that_is_kept_goes_to_the_flows_of_a_newcomer_in_turn(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 100, org="a", flow="k1")
    await put_queue(connection, 3, org="a", flow="k2")
    await put_queue(connection, 5, org="holder")
    seen: list[str] = []
    for _ in range(6):
        claimed = await worker.claim_for_newcomers(1, holders={"holder"})
        seen += [job.queue_key for job in claimed]
    assert seen == ["k1", "k2"] * 3


async def test_flows_of_newcomers_take_turns_whoever_holds_slots_between(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for org in ("a", "b", "c", "d"):
        await put_queue(connection, 10, org=org, flow="k1")
        await put_queue(connection, 10, org=org, flow="k2")
    seen: Counter[tuple[str, str]] = Counter()
    for holders in ({"nobody"}, {"a", "b"}, {"c", "d"}):
        claimed = await worker.claim_for_newcomers(4, holders=holders)
        seen.update((job.org, job.queue_key) for job in claimed)
    assert seen == {(org, flow): 1 for org in "abcd" for flow in ("k1", "k2")}
    for holders in ({"a", "b", "c"}, {"a", "b", "c"}):
        claimed = await worker.claim_for_newcomers(1, holders=holders)
        seen.update((job.org, job.queue_key) for job in claimed)
    assert (seen["d", "k1"], seen["d", "k2"]) == (2, 2)


@pytest.mark.parametrize(("flows", "room"), [(10, 1), (10, 3), (100, 7), (7, 7), (1_200, 500)])
async def test_with_more_flows_than_room_each_has_its_turn_within_a_round(
    flows: int, room: int, connection: AsyncpgConnection, worker: Claimer
) -> None:
    claims = math.ceil(flows / room) + 1
    await put_flows(connection, flows, jobs_each=3)
    turns = await turns_within(worker, room, claims)
    assert len(turns) == flows


@pytest.mark.parametrize("room", [1, 2, 5])
async def test_the_endpoints_of_one_flow_take_turns(
    room: int, dsn: str, connection: AsyncpgConnection
) -> None:
    endpoints = [f"demo.post__{name}" for name in ("a", "b", "c", "d")]
    for endpoint in endpoints:
        await put_queue(connection, 100, endpoint=endpoint)
    async with claimer(dsn, endpoints) as worker:
        turns = await turns_within(worker, room, math.ceil(len(endpoints) / room) + 1)
    assert {endpoint for endpoint, _, _ in turns} == set(endpoints)


@pytest.mark.parametrize(("room", "flows"), [(1, 5), (2, 5), (3, 20), (500, 700)])
async def test_organisations_that_use_two_endpoints_have_both_served_within_two_rounds(
    room: int, flows: int, dsn: str, connection: AsyncpgConnection
) -> None:
    """One endpoint has a single flow, which sorts last; it must not keep the others from theirs."""
    endpoints = ["demo.post__a", "demo.post__b", "demo.post__c"]
    await put_flows(connection, flows, jobs_each=4, endpoint=endpoints[0])
    await put_flows(connection, flows, jobs_each=4, endpoint=endpoints[1])
    await put_queue(connection, 3_000, endpoint=endpoints[2], org="zzz")
    async with claimer(dsn, endpoints) as worker:
        turns = await turns_within(worker, room, 2 * math.ceil((flows + 1) / room) + 1)
    assert len(turns) == 2 * flows + 1


async def test_a_flow_that_comes_late_waits_one_round_at_most(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_flows(connection, 40, jobs_each=20)
    await turns_within(worker, 4, 5)
    await put_queue(connection, 1, org="late")
    turns = await turns_within(worker, 4, math.ceil(41 / 4) + 1)
    assert (ENDPOINT, "late", "") in turns


@pytest.mark.parametrize(("flows", "room"), [(9, 4), (3, 4), (2, 3), (5, 13)])
async def test_over_many_claims_nobody_gets_more_than_a_turn_ahead(
    flows: int, room: int, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_flows(connection, flows, jobs_each=100)
    turns = await turns_within(worker, room, 17)
    assert turns.total() == room * 17
    assert max(turns.values()) - min(turns.values()) <= 1


async def test_lanes_take_turns_apart(connection: AsyncpgConnection, worker: Claimer) -> None:
    """A turn in one lane is no turn in another."""
    for lane in (Lane.URGENT, Lane.BULK):
        for org in ("a", "b", "c"):
            await put_queue(connection, 10, org=org, lane=lane)
    seen: Counter[tuple[Lane, str]] = Counter()
    for _ in range(3):
        claimed = await worker.claim({Lane.URGENT: 1, Lane.BULK: 1})
        seen.update((job.lane, job.org) for job in claimed)
    assert seen == {(lane, org): 1 for lane in (Lane.URGENT, Lane.BULK) for org in "abc"}


async def test_a_worker_that_leaves_every_endpoint_out_claims_nothing(
    dsn: str, connection: AsyncpgConnection
) -> None:
    """All its threads may be held, and then it asks for no endpoint at all."""
    await put_queue(connection, 3)
    async with claimer(dsn, []) as worker:
        assert await worker.claim(4) == []
