"""Limits of a run: what they hold for, when they let go, and what is left of them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import asyncpg
import pytest

from coatcheck.core.queries import maintenance, sql
from coatcheck.core.queries.limits import set_limit, set_run_limits, sharing, stop_run
from coatcheck.domain.ids import new_id
from coatcheck.domain.job import ConcurrencyLimit
from coatcheck.domain.limits import CRASHES_MAX
from coatcheck.domain.states import TransitionEvent
from tests.db.claimer import KEEP_FAILED_SECONDS, Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import ROWS_MAX, fall_silent
from tests.db.rows import ORG, put_queue
from tests.db.run_rows import put_run, run_of


async def test_a_run_holds_no_more_tasks_than_it_may_whatever_their_keys(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    run = await put_run(connection, 5, keys=["a", "b", "c", "d"], concurrency=3)
    claimed = await worker.claim_limited(10) + await worker.claim_limited(10)
    assert [run_of(job) for job in claimed] == [run] * 3
    await worker.complete(claimed[0])
    assert len(await worker.claim_limited(10)) == 1


async def test_a_run_s_limits_hold_for_no_other_run_and_no_other_organisation(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    run = await put_run(connection, 5, keys=["a"], concurrency=1, per_second=0.001)
    await put_run(connection, 5, keys=["a"])
    await put_run(connection, 5, keys=["a"], run=run, org="another")
    await set_run_limits(
        connection, "another", run, concurrency=None, per_second=None, key_per_second=None
    )
    assert len(await worker.claim(20)) == 10
    assert len(await worker.claim_limited(20)) == 1


async def test_a_run_under_a_limit_is_claimed_by_one_kind_of_claim_only(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_run(connection, 5, per_second=1000.0)
    assert await worker.claim(10) == []
    assert len(await worker.claim_limited(10)) == 5


async def test_a_stopped_run_is_claimed_no_more(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    limited = await put_run(connection, 5, keys=["a", "b"], concurrency=9, per_second=100.0)
    unlimited = await put_run(connection, 5)
    for run in (limited, unlimited):
        await stop_run(connection, ORG, run)
    assert await worker.claim(10) + await worker.claim_limited(10) == []


async def test_a_run_without_limits_is_as_any_flow(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    run = await put_run(connection, 5, concurrency=1)
    await set_run_limits(
        connection, ORG, run, concurrency=None, per_second=None, key_per_second=None
    )
    assert not (await sharing(worker.line)).limited
    assert len(await worker.claim(10)) == 5


async def test_other_limits_hold_beside_those_of_a_run(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    run = await put_run(connection, 5, keys=["a", "b", "c"], concurrency=4)
    await set_limit(worker.line, ConcurrencyLimit(ORG, "flow", f"{run.hex}/a", 0))
    await set_limit(worker.line, ConcurrencyLimit(ORG, "flow", f"{run.hex}/b", 1))
    claimed = [job for _ in range(5) for job in await worker.claim_limited(10)]
    assert sorted(job.queue_key[-2:] for job in claimed) == ["/b", "/c", "/c", "/c"]
    await set_limit(worker.line, ConcurrencyLimit(ORG, "org", "", 4))
    await worker.complete(*claimed[:2])
    await put_queue(connection, 5)
    assert len(await worker.claim_limited(10)) == 2


async def test_workers_that_claim_together_hold_exactly_as_many_as_a_run_may(
    dsn: str, connection: AsyncpgConnection
) -> None:
    await put_run(connection, 50, keys=["a", "b", "c", "d"], concurrency=5)
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(claimer(dsn)) for _ in range(4)]
        for _ in range(20):
            shares = await asyncio.gather(*(each.claim_limited(5) for each in workers))
            assert sum(map(len, shares)) == 5
            for each, share in zip(workers, shares, strict=True):
                if share:
                    await each.complete(*share)


async def test_a_dead_worker_s_permits_come_back_when_its_tasks_are_rescued(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_run(connection, 2, keys=["a", "b"], concurrency=2)
    assert len(await worker.claim_limited(5)) == 2
    assert await worker.claim_limited(5) == []
    await fall_silent(worker)
    await maintenance.rescue(
        worker.line,
        crashes_max=CRASHES_MAX,
        keep_failed_seconds=KEEP_FAILED_SECONDS,
        rows_max=ROWS_MAX,
    )
    assert len(await worker.claim_limited(5)) == 2


async def test_what_is_noted_of_a_run_goes_with_it(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    kept = await put_run(connection, 1, keys=["a"], concurrency=2, key_per_second=0.01)
    gone = await put_run(connection, 1, keys=["a", "b"], per_second=0.01, key_per_second=0.01)
    assert len(await worker.claim_limited(9)) == 2
    await connection.execute(
        f"WITH ended AS (SELECT $1::text AS org_id, $2::uuid AS run_id),"
        f" {sql('limits/clear_run')} SELECT FROM ended",
        ORG,
        gone,
    )
    for table in ("run_limits", "run_tokens"):
        runs = await connection.fetch(f"SELECT DISTINCT run FROM {table}")
        assert [row["run"] for row in runs] == [kept.hex]


async def test_a_claim_that_was_given_back_does_not_return_its_token(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_run(connection, 1, per_second=0.01)
    (job,) = await worker.claim_limited(5)
    await worker.settle(job, TransitionEvent.RELEASE, delay=0)
    assert await worker.claim_limited(5) == []


@pytest.mark.parametrize("per_second", [0.0, 0.0009, 100_001.0, float("nan"), float("inf")])
async def test_a_rate_that_cannot_be_kept_is_refused(
    per_second: float, connection: AsyncpgConnection
) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await set_run_limits(
            connection, ORG, new_id(), concurrency=None, per_second=per_second, key_per_second=None
        )
