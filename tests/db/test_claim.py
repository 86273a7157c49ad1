"""Claiming: the oldest first, never too many, never twice, and only what was asked for."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest

from coatcheck.core.queries import sql
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from tests.db.claimer import KEEP_COMPLETED_SECONDS, Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ENDPOINT, count_by_state, put_job, put_queue, row_of


async def test_a_flow_is_served_oldest_first(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 20)
    in_order = await connection.fetch("SELECT id FROM jobs ORDER BY run_at, id")
    claimed = [job.uuid for _ in range(4) for job in await worker.claim(5)]
    for start in range(0, 20, 5):
        batch = {row["id"] for row in in_order[start : start + 5]}
        assert set(claimed[start : start + 5]) == batch


async def test_only_served_endpoints_are_claimed(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 5, endpoint="demo.post__other")
    await put_queue(connection, 5, endpoint=f"{ENDPOINT}2")
    assert await worker.claim(10) == []
    await put_queue(connection, 2)
    assert {job.endpoint for job in await worker.claim(10)} == {ENDPOINT}


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("flows", [1, 3, 50])
async def test_a_claim_never_takes_more_than_its_room(
    flows: int, analyzed: bool, connection: AsyncpgConnection, worker: Claimer
) -> None:
    """A LIMIT that the planner may run again per row claims too many: seen elsewhere, 100 for 5."""
    for number in range(flows):
        await put_queue(connection, 300 // flows, flow=f"flow {number}")
    if analyzed:
        await connection.execute("ANALYZE jobs")
    for room in (1, 5, 7, 64):
        assert len(await worker.claim(room)) == room
    assert (await count_by_state(connection))[State.DISPATCHING] == 1 + 5 + 7 + 64


async def test_no_room_is_no_claim(connection: AsyncpgConnection, worker: Claimer) -> None:
    await put_queue(connection, 5)
    assert await worker.claim(0) == []
    assert await worker.claim({Lane.URGENT: 10, Lane.BULK: 10}) == []


async def test_each_lane_has_its_own_room(connection: AsyncpgConnection, worker: Claimer) -> None:
    for lane in Lane:
        await put_queue(connection, 10, lane=lane)
    claimed = await worker.claim({Lane.URGENT: 3, Lane.STANDARD: 2, Lane.BULK: 1})
    assert Counter(job.lane for job in claimed) == {Lane.URGENT: 3, Lane.STANDARD: 2, Lane.BULK: 1}


async def test_urgent_work_is_claimed_while_bulk_is_full(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 1_000, lane=Lane.BULK)
    await worker.claim({Lane.URGENT: 4, Lane.BULK: 16})
    await put_queue(connection, 1, lane=Lane.URGENT)
    (urgent,) = await worker.claim({Lane.URGENT: 4, Lane.BULK: 0})
    assert urgent.lane is Lane.URGENT


async def test_several_workers_never_claim_the_same_job(
    dsn: str, connection: AsyncpgConnection
) -> None:
    for number in range(50):
        await put_queue(connection, 100, org=f"org {number % 5}", flow=f"flow {number}")

    async def drain(worker: Claimer) -> list[object]:
        mine: list[object] = []
        while claimed := await worker.claim(37):
            mine += [job.uuid for job in claimed]
        return mine

    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(claimer(dsn)) for _ in range(4)]
        shares = await asyncio.gather(*map(drain, workers))
    taken = [job_id for share in shares for job_id in share]
    assert len(taken) == len(set(taken)) == 5_000
    assert all(shares), "every worker got some"


async def test_a_locked_job_is_stepped_over_not_waited_for(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 3)
    async with connection.transaction():
        locked = await connection.fetchval(
            "SELECT id FROM jobs ORDER BY run_at, id LIMIT 1 FOR UPDATE"
        )
        claimed = await worker.claim(3)
    assert locked not in {job.uuid for job in claimed}
    assert len(claimed) == 2


async def test_a_claim_that_was_not_committed_leaves_its_jobs_claimable(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 3)
    undone = connection.transaction()
    await undone.start()
    rows = await connection.fetch(
        sql("claims/exchange"), *worker.order(3).arguments(limited=False), [], [], [], [], [], [],
        KEEP_COMPLETED_SECONDS, [],
    )  # fmt: skip
    assert sum(row["id"] is not None for row in rows) == 3
    await undone.rollback()
    assert len(await worker.claim(3)) == 3


async def test_a_claim_sets_the_time_by_which_the_job_must_end(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    own = await put_job(connection, timeout_seconds=7)
    usual = await put_job(connection)
    await worker.claim(2)
    for job, seconds in ((own, 7), (usual, 60)):
        row = await row_of(connection, job)
        assert (row["run_deadline"] - row["dispatched_at"]).total_seconds() == seconds


async def test_a_job_is_never_dispatched_before_it_was_created(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """A claim may begin before a job is created and see it all the same."""
    job = await put_job(connection, created_at=datetime.now(UTC) + timedelta(minutes=1))
    await worker.claim(1)
    row = await row_of(connection, job)
    assert row["dispatched_at"] == row["created_at"]


async def test_one_round_trip_hands_in_and_takes_out(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 2)
    (first,) = await worker.claim(1)
    assert await worker.complete(first, result=b'{"a":1}') == 1
    assert (await row_of(connection, first))["result"] == b'{"a":1}'
    assert len(await worker.claim(5)) == 1
