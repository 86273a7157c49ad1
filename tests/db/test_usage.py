"""What a job used is counted once, by the statement that ends it, whichever way it ends."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from coatcheck.core.queries import jobs, leases, maintenance, sql, usage
from coatcheck.core.queries.leases import FinishedJob
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.limits import CRASHES_MAX
from coatcheck.domain.states import State, TransitionEvent
from coatcheck.domain.usage import UsageRow
from tests.db.blocking import until_blocked
from tests.db.claimer import KEEP_COMPLETED_SECONDS, KEEP_FAILED_SECONDS, Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import ROWS_MAX, fall_silent
from tests.db.rows import ENDPOINT, HOLDER_BOOT, ORG, put_job, row_of

BLOCKED = "coatcheck test claimer"
LONG_AGO = datetime.now(UTC) - timedelta(hours=1)
EVER = (date(2000, 1, 1), date(2100, 1, 1))
PAYLOAD = b'{"n": 1}'
RAN_SECONDS = 0.5
"""What the claimer says that every attempt took."""


async def used(worker: Claimer, org: str = ORG) -> list[UsageRow]:
    return await usage.read(worker.line, org, *EVER, None)


async def ended(worker: Claimer) -> dict[State, int]:
    """How many jobs were counted, by the state they ended in."""
    rows = await used(worker)
    return {
        state: count
        for state, count in (
            (State.COMPLETED, sum(row.completed for row in rows)),
            (State.FAILED, sum(row.failed for row in rows)),
            (State.CANCELLED, sum(row.cancelled for row in rows)),
        )
        if count
    }


async def rescue(worker: Claimer) -> list[maintenance.Rescued]:
    await fall_silent(worker)
    return await maintenance.rescue(
        worker.line,
        crashes_max=CRASHES_MAX,
        keep_failed_seconds=KEEP_FAILED_SECONDS,
        rows_max=ROWS_MAX,
    )


async def fail_overrun(worker: Claimer) -> None:
    await maintenance.fail_overrun(
        worker.line, slack_seconds=0, keep_failed_seconds=KEEP_FAILED_SECONDS, rows_max=ROWS_MAX
    )


async def expire(worker: Claimer) -> None:
    await maintenance.expire_waiting(
        worker.line, keep_failed_seconds=KEEP_FAILED_SECONDS, rows_max=ROWS_MAX
    )


async def cancel(worker: Claimer, job: ClaimedJob) -> None:
    await jobs.cancel(worker.line, job.org, job.uuid, KEEP_FAILED_SECONDS)


async def end(how: str, worker: Claimer, job: ClaimedJob) -> None:
    match how:
        case "complete":
            await worker.complete(job, result=b"12345")
        case "complete and notify":
            await worker.complete_and_notify(job, result=b"12345")
        case "fail":
            await worker.settle(job, TransitionEvent.FAIL)
        case "last retry":
            await worker.settle(job, TransitionEvent.RETRY)
        case "acknowledge":
            await worker.settle(job, TransitionEvent.ACKNOWLEDGE_CANCEL)
        case "cancel":
            await cancel(worker, job)
        case "expire":
            await expire(worker)
        case "overrun":
            await fail_overrun(worker)
        case "rescue":
            await rescue(worker)
        case "give back":
            await leases.release_claim(worker.line, job.lease, KEEP_FAILED_SECONDS)
        case _:
            raise NotImplementedError(how)


WAYS: list[tuple[str, State, dict[str, Any], State, int]] = [
    ("complete", State.PROCESSING, {"failures": 1, "crashes": 1}, State.COMPLETED, 3),
    ("complete", State.CANCEL_REQUESTED, {}, State.COMPLETED, 1),
    ("complete and notify", State.PROCESSING, {"failures": 1}, State.COMPLETED, 2),
    ("complete and notify", State.CANCEL_REQUESTED, {}, State.COMPLETED, 1),
    ("fail", State.PROCESSING, {"failures": 1}, State.FAILED, 2),
    ("last retry", State.PROCESSING, {"failures": 3}, State.FAILED, 4),
    ("acknowledge", State.CANCEL_REQUESTED, {"failures": 1}, State.CANCELLED, 1),
    ("cancel", State.QUEUED, {}, State.CANCELLED, 0),
    ("cancel", State.STAGED, {}, State.CANCELLED, 0),
    ("cancel", State.RETRYING, {"failures": 2}, State.CANCELLED, 2),
    ("expire", State.QUEUED, {"start_deadline": LONG_AGO}, State.FAILED, 0),
    ("overrun", State.PROCESSING, {"failures": 3, "run_deadline": LONG_AGO}, State.FAILED, 4),
    ("overrun", State.CANCEL_REQUESTED, {"run_deadline": LONG_AGO}, State.CANCELLED, 1),
    ("rescue", State.PROCESSING, {"crashes": CRASHES_MAX}, State.FAILED, CRASHES_MAX + 1),
    ("rescue", State.CANCEL_REQUESTED, {}, State.CANCELLED, 1),
    ("give back", State.CANCEL_REQUESTED, {"lease": HOLDER_BOOT << 40 | 5}, State.CANCELLED, 0),
]


@pytest.mark.parametrize(("how", "state", "columns", "final", "attempts"), WAYS)
async def test_every_way_to_end_is_counted_once(
    how: str,
    state: State,
    columns: dict[str, Any],
    final: State,
    attempts: int,
    connection: AsyncpgConnection,
    worker: Claimer,
) -> None:
    job = await put_job(connection, state, payload=PAYLOAD, flow="f", **columns)
    job.payload = PAYLOAD  # as the claim gave it
    await end(how, worker, job)
    await end(how, worker, job)  # whoever says it again changes nothing
    row = await row_of(connection, job)
    (counted,) = await used(worker)
    assert State(row["state"]) is final
    assert await ended(worker) == {final: 1}
    assert (counted.endpoint, counted.queue_key, counted.jobs) == (ENDPOINT, "f", 1)
    assert counted.attempts == attempts
    assert counted.payload_bytes == len(PAYLOAD)
    assert counted.result_bytes == (5 if final is State.COMPLETED else 0)
    assert counted.day == row["finished_at"].astimezone(UTC).date()
    assert counted.run_seconds == pytest.approx(row["run_seconds"])


async def test_nothing_is_counted_of_a_job_that_goes_on(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for event in (TransitionEvent.RETRY, TransitionEvent.UNREACHABLE, TransitionEvent.RELEASE):
        await worker.settle(await put_job(connection, State.PROCESSING), event)
    await put_job(connection, State.PROCESSING)
    assert len(await rescue(worker)) == 1
    assert await used(worker) == []


async def test_the_time_of_every_attempt_is_counted(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """Failed, unreachable and interrupted ones too; they all kept a worker busy."""
    await put_job(connection, State.QUEUED)
    for event in (TransitionEvent.RETRY, TransitionEvent.UNREACHABLE, TransitionEvent.RELEASE):
        (job,) = await worker.claim(1)
        await worker.settle(job, event, delay=0.0)
        await maintenance.queue_due(worker.line, ROWS_MAX)
    (job,) = await worker.claim(1)
    assert await worker.complete(job) == 1
    (counted,) = await used(worker)
    assert counted.run_seconds == pytest.approx(4 * RAN_SECONDS)
    assert counted.attempts == 2


async def test_a_lost_attempt_ran_until_its_worker_was_last_heard_of(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_job(
        connection,
        State.PROCESSING,
        crashes=CRASHES_MAX,
        started_at=datetime.now(UTC) - timedelta(hours=1, seconds=30),
    )
    await rescue(worker)  # which makes it silent for an hour
    (counted,) = await used(worker)
    assert counted.run_seconds == pytest.approx(30, abs=20)


async def test_a_batch_is_a_row_for_each_group_and_not_for_each_job(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    held = [
        await put_job(connection, State.PROCESSING, org_id=org, flow=flow)
        for org in ("a", "b")
        for flow in ("", "f")
        for _ in range(5)
    ]
    assert await worker.complete(*held) == len(held)
    assert await connection.fetchval("SELECT count(*) FROM usage_deltas") == 4
    assert [(row.queue_key, row.completed) for row in await used(worker, "a")] == [
        ("", 5),
        ("f", 5),
    ]


async def test_a_late_result_is_not_counted(connection: AsyncpgConnection, worker: Claimer) -> None:
    """The job was rescued, claimed again and completed: the first holder's result is refused."""
    await put_job(connection, State.QUEUED)
    (stale,) = await worker.claim(1)
    await rescue(worker)
    await worker.line.fetch("UPDATE workers SET last_seen_at = now()")
    (fresh,) = await worker.claim(1)
    assert await worker.complete(stale) == 0
    assert await worker.complete(fresh) == 1
    assert await worker.settle(stale, TransitionEvent.FAIL) is None
    assert await ended(worker) == {State.COMPLETED: 1}


async def test_of_a_finish_and_a_rescue_that_meet_one_is_counted(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, crashes=CRASHES_MAX)
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
    assert await ended(worker) == {State.FAILED: 1}


async def test_a_result_that_is_handed_in_twice_is_counted_once(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """The first is under way, its answer lost; the worker sends it again."""
    job = await put_job(connection, State.PROCESSING)
    done = FinishedJob(job, b"1", RAN_SECONDS)
    async with connection.transaction():
        await connection.fetch(
            sql("claims/exchange"),
            *worker.order(0).arguments(limited=False),
            [job.org],
            [job.uuid],
            [job.lease],
            [done.result],
            [done.ran_seconds],
            [2],
            KEEP_COMPLETED_SECONDS,
            [],
        )
        again = asyncio.create_task(worker.complete(job))
        await until_blocked(connection, BLOCKED)
    assert await again == 0
    assert await ended(worker) == {State.COMPLETED: 1}


async def test_a_finish_that_is_undone_is_not_counted(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.QUEUED)
    undone = connection.transaction()
    await undone.start()
    await sql.fetch(
        connection, "jobs/cancel", org=job.org, job=job.uuid, keep_seconds=KEEP_FAILED_SECONDS
    )
    await undone.rollback()
    assert await used(worker) == []
