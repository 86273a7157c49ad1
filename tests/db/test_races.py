"""Two want the same job: one holds its row, the other is seen waiting, and exactly one wins."""

from __future__ import annotations

import asyncio

from coatcheck.core.queries import jobs, leases, maintenance, sql
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.limits import CRASHES_MAX
from coatcheck.domain.states import State, TransitionEvent
from tests.db.blocking import until_blocked
from tests.db.claimer import KEEP_COMPLETED_SECONDS, KEEP_FAILED_SECONDS, Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import ROWS_MAX, fall_silent
from tests.db.rows import put_job, row_of, state_of

BLOCKED = "coatcheck test claimer"


async def complete_without_commit(
    connection: AsyncpgConnection, worker: Claimer, job: ClaimedJob
) -> None:
    await connection.fetch(
        sql("claims/exchange"),
        *worker.order(0).arguments(limited=False),
        [job.org],
        [job.uuid],
        [job.lease],
        [b"1"],
        [0.5],
        [2],
        KEEP_COMPLETED_SECONDS,
        [],
    )


async def cancel(worker: Claimer, job: ClaimedJob) -> tuple[State, State, int | None] | None:
    answer = await jobs.cancel(worker.line, job.org, job.uuid, KEEP_FAILED_SECONDS)
    return None if answer is None else (answer.before, answer.after, answer.boot)


async def test_a_cancel_that_meets_a_finish_finds_the_job_ended(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    async with connection.transaction():
        await complete_without_commit(connection, worker, job)
        asked = asyncio.create_task(cancel(worker, job))
        await until_blocked(connection, BLOCKED)
    assert await asked == (State.COMPLETED, State.COMPLETED, None)
    assert await state_of(connection, job) is State.COMPLETED


async def test_a_cancel_that_meets_a_claim_asks_the_new_holder(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.QUEUED)
    order = worker.order(1)
    async with connection.transaction():
        await connection.fetch(
            sql("claims/exchange"), *order.arguments(limited=False), [], [], [], [], [], [], 0, []
        )
        asked = asyncio.create_task(cancel(worker, job))
        await until_blocked(connection, BLOCKED)
    assert await asked == (State.DISPATCHING, State.CANCEL_REQUESTED, worker.boot)
    row = await row_of(connection, job)
    assert (State(row["state"]), row["lease"]) == (State.CANCEL_REQUESTED, order.lease)


async def test_a_cancel_that_meets_a_release_cancels_at_once(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.DISPATCHING)
    async with connection.transaction():
        await sql.fetch(
            connection, "claims/release_claim", lease=job.lease, keep_seconds=KEEP_FAILED_SECONDS
        )
        asked = asyncio.create_task(cancel(worker, job))
        await until_blocked(connection, BLOCKED)
    assert await asked == (State.QUEUED, State.CANCELLED, None)
    assert await state_of(connection, job) is State.CANCELLED


async def test_a_cancel_that_meets_a_claim_undone_cancels_at_once(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.QUEUED)
    undone = connection.transaction()
    await undone.start()
    await connection.fetch(
        sql("claims/exchange"),
        *worker.order(1).arguments(limited=False),
        *([],) * 6,
        0,
        [],
    )
    asked = asyncio.create_task(cancel(worker, job))
    await until_blocked(connection, BLOCKED)
    await undone.rollback()
    assert await asked == (State.QUEUED, State.CANCELLED, None)


async def test_a_finish_that_meets_a_cancel_keeps_its_true_end(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    async with connection.transaction():
        await sql.fetch(
            connection, "jobs/cancel", org=job.org, job=job.uuid, keep_seconds=KEEP_FAILED_SECONDS
        )
        finishing = asyncio.create_task(worker.complete(job))
        await until_blocked(connection, BLOCKED)
    assert await finishing == 1
    assert await state_of(connection, job) is State.COMPLETED


async def test_a_retry_that_meets_a_cancel_is_cancelled(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    async with connection.transaction():
        await sql.fetch(
            connection, "jobs/cancel", org=job.org, job=job.uuid, keep_seconds=KEEP_FAILED_SECONDS
        )
        settling = asyncio.create_task(worker.settle(job, TransitionEvent.RETRY))
        await until_blocked(connection, BLOCKED)
    assert await settling is State.CANCELLED
    assert (await row_of(connection, job))["error_code"] == "cancelled"


async def test_a_start_mark_that_meets_a_cancel_does_not_undo_it(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.DISPATCHING)
    async with connection.transaction():
        await sql.fetch(
            connection, "jobs/cancel", org=job.org, job=job.uuid, keep_seconds=KEEP_FAILED_SECONDS
        )
        marking = asyncio.create_task(leases.mark_started(worker.line, [(job, 0.5)]))
        await until_blocked(connection, BLOCKED)
    assert await marking == {job.uuid}
    assert await state_of(connection, job) is State.CANCEL_REQUESTED


async def test_a_finish_that_meets_a_rescue_is_refused(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    await fall_silent(worker)
    async with connection.transaction():
        rescued = await sql.fetch(
            connection,
            "maintenance/rescue",
            crashes_max=CRASHES_MAX,
            keep_seconds=KEEP_FAILED_SECONDS,
            rows_max=ROWS_MAX,
            crashes_together_max=9,
            delays=[5.0],
            jitter=1.0,
        )
        assert len(rescued) == 1
        finishing = asyncio.create_task(worker.complete(job))
        await until_blocked(connection, BLOCKED)
    assert await finishing == 0
    row = await row_of(connection, job)
    assert (State(row["state"]), row["crashes"], row["result"]) == (State.QUEUED, 1, None)


async def test_a_rescue_that_meets_a_finish_leaves_the_job_alone(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    await fall_silent(worker)
    async with connection.transaction():
        await complete_without_commit(connection, worker, job)
        rescued = await maintenance.rescue(
            worker.line,
            crashes_max=CRASHES_MAX,
            keep_failed_seconds=KEEP_FAILED_SECONDS,
            rows_max=ROWS_MAX,
        )
        assert rescued == []
    assert await state_of(connection, job) is State.COMPLETED


async def test_a_result_that_is_handed_in_twice_counts_once(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """The answer to the first was lost: the worker sends it again."""
    job = await put_job(connection, State.PROCESSING)
    async with connection.transaction():
        await complete_without_commit(connection, worker, job)
        again = asyncio.create_task(worker.complete(job, result=b"2"))
        await until_blocked(connection, BLOCKED)
    assert await again == 0
    assert (await row_of(connection, job))["result"] == b"1"
