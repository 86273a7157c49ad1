"""Rates hold over all workers, by the database's clock: of a run, of each of its keys, of both."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from datetime import datetime
from math import floor
from uuid import UUID

import pytest

from coatcheck.core.queries.claims import claim_limited
from coatcheck.domain.limits import RATE_BURST_SECONDS
from coatcheck.domain.states import TransitionEvent
from tests.db.claimer import Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ORG, recorded
from tests.db.run_rows import key_of, let_pass, put_run

SLOW = 0.01
"""A hundred seconds from start to start: no test lasts as long, so only ``let_pass`` counts."""
STEP_SECONDS = 1 / SLOW
ROOM = 500


async def starts(worker: Claimer, room: int = ROOM) -> int:
    """How many tasks can be started now, until there are no more."""
    started = 0
    while claimed := await worker.claim_limited(room):
        started += len(claimed)
    return started


async def test_a_run_starts_one_task_for_each_step_of_its_rate(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_run(connection, 5, keys=["a", "b"], per_second=SLOW)
    assert await starts(worker) == 1
    for _ in range(3):
        await let_pass(connection, STEP_SECONDS / 2)
        assert await starts(worker) == 0
        await let_pass(connection, STEP_SECONDS / 2)
        assert await starts(worker) == 1


async def test_time_in_which_nothing_was_started_is_not_saved_up(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_run(connection, 5, keys=["a", "b"], per_second=SLOW, key_per_second=SLOW)
    assert await starts(worker) == 1
    await let_pass(connection, 100 * STEP_SECONDS)
    assert await starts(worker) == 1


async def test_each_key_has_a_rate_of_its_own(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_run(connection, 5, keys=["a", "b", "c"], key_per_second=SLOW)
    for _ in range(3):
        claimed = await worker.claim_limited(ROOM)
        assert sorted(map(key_of, claimed)) == ["a", "b", "c"]
        assert await starts(worker) == 0
        await let_pass(connection, STEP_SECONDS)


async def test_the_rates_of_a_run_and_of_its_keys_and_its_concurrency_all_hold(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    keys = ["a", "b", "c", "d"]
    await put_run(connection, 9, keys=keys, concurrency=3, per_second=SLOW, key_per_second=SLOW / 4)
    started: list[str] = []
    held = []
    for _ in range(8):
        held += await worker.claim_limited(ROOM)
        started += [key_of(job) for job in held[len(started) :]]
        await let_pass(connection, STEP_SECONDS)
    assert len(held) == 3, "no more than are held at once"
    await worker.complete(*held)
    for _ in range(5):
        claimed = await worker.claim_limited(ROOM)
        assert len(claimed) <= 1
        started += map(key_of, claimed)
        await worker.complete(*claimed)
        await let_pass(connection, STEP_SECONDS)
    assert set(Counter(started).values()) == {2}


@pytest.mark.parametrize("per_second", [0.001, 1.0, 19.0, 20.0, 1_000.0, 8_000.0])
async def test_a_burst_is_what_the_rate_gives_in_a_twentieth_of_a_second_and_one(
    per_second: float, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_run(connection, ROOM, per_second=per_second)
    burst = 1 + floor(per_second * RATE_BURST_SECONDS)
    assert len(await worker.claim_limited(ROOM)) == min(burst, ROOM)


@pytest.mark.parametrize("per_second", [0.001, 3.0, 700.0, 30_000.0, 100_000.0])
@pytest.mark.parametrize("scope", ["run", "key"])
async def test_however_many_workers_claim_no_token_is_given_twice(
    scope: str, per_second: float, dsn: str, connection: AsyncpgConnection
) -> None:
    """In step again is who started ``n`` no sooner than ``n`` steps after it began."""
    keys = ["a"] if scope == "key" else ["a", "b", "c"]
    rates = {"per_second" if scope == "run" else "key_per_second": per_second}
    run = await put_run(connection, 600, keys=keys, **rates)
    began = await connection.fetchval("SELECT clock_timestamp()")
    started = 0

    async def work(worker: Claimer) -> None:
        nonlocal started
        for _ in range(10):
            claimed = await worker.claim_limited(7)
            started += len(claimed)

    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(claimer(dsn)) for _ in range(4)]
        await asyncio.gather(*map(work, workers))
    in_step_at = await in_step(connection, run, "" if scope == "run" else f"{run.hex}/a")
    assert started >= 1
    assert (in_step_at - began).total_seconds() >= started / per_second - 1e-6
    now = await connection.fetchval("SELECT clock_timestamp()")
    elapsed = (now - began).total_seconds()
    assert started <= 1 + per_second * (elapsed + RATE_BURST_SECONDS)


async def test_a_retry_takes_a_token(connection: AsyncpgConnection, worker: Claimer) -> None:
    await put_run(connection, 1, keys=["a"], key_per_second=SLOW)
    (job,) = await worker.claim_limited(ROOM)
    await worker.settle(job, TransitionEvent.RETRY, delay=0)
    await connection.execute(recorded("UPDATE jobs SET state = 'queued' WHERE state = 'retrying'"))
    assert await starts(worker) == 0
    await let_pass(connection, STEP_SECONDS)
    (again,) = await worker.claim_limited(ROOM)
    assert again.uuid == job.uuid


async def test_a_claim_tells_when_the_next_token_will_be_there(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_run(connection, 5, per_second=SLOW)
    assert await look_again(worker, claims=1) is None, "it asks again at once, having got one"
    assert STEP_SECONDS - 50 < (await look_again(worker, claims=0) or 0) <= STEP_SECONDS
    await put_run(connection, 5, keys=["a", "b"], key_per_second=4 * SLOW)
    await look_again(worker, claims=2)
    assert 0 < (await look_again(worker, claims=0) or 0) <= STEP_SECONDS / 4


async def test_what_waits_for_a_permit_or_for_nothing_is_not_waited_for(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_run(connection, 5, keys=["a"], concurrency=1, per_second=1.0, key_per_second=1.0)
    await put_run(connection, 1, concurrency=1)
    await look_again(worker, claims=2)
    assert await look_again(worker, claims=0) is None


async def test_a_key_that_has_no_more_work_is_forgotten(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    run = await put_run(connection, 1, keys=["a", "b"], key_per_second=SLOW)
    await put_run(connection, 1, keys=["b"], run=run, key_per_second=SLOW)
    assert len(await worker.claim_limited(ROOM)) == 2
    await let_pass(connection, 2 * STEP_SECONDS)
    (job,) = await worker.claim_limited(ROOM)
    assert key_of(job) == "b"
    flows = await connection.fetch("SELECT flow FROM run_tokens WHERE flow <> ''")
    assert [row["flow"] for row in flows] == [f"{run.hex}/b"]


async def test_a_server_that_crashed_remembers_its_rates(connection: AsyncpgConnection) -> None:
    logged = await connection.fetchval(
        "SELECT relpersistence = 'p' FROM pg_class WHERE relname = 'run_tokens'"
    )
    assert logged


async def look_again(worker: Claimer, *, claims: int) -> float | None:
    order = worker.order(ROOM)
    assert len(await claim_limited(worker.line, order)) == claims
    return order.look_again_seconds


async def in_step(connection: AsyncpgConnection, run: UUID, flow: str) -> datetime:
    in_step_at: datetime = await connection.fetchval(
        "SELECT in_step_at FROM run_tokens WHERE (org_id, run, flow) = ($1, $2, $3)",
        ORG,
        run.hex,
        flow,
    )
    return in_step_at
