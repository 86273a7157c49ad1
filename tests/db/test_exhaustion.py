"""Attempts are bounded, and what does not count as one spends none."""

from __future__ import annotations

from contextlib import AsyncExitStack
from uuid import uuid4

import pytest

from coatcheck.core.queries import maintenance
from coatcheck.domain.limits import CRASHES_MAX, CRASHES_TOGETHER_MAX
from coatcheck.domain.retry import CRASH_BACKOFF, Backoff
from coatcheck.domain.states import State, TransitionEvent
from coatcheck.processes import ProcessIdentity
from tests.db.claimer import KEEP_FAILED_SECONDS, Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import ROWS_MAX, fall_silent
from tests.db.rows import put_job, recorded, row_of

SMALLINT_MAX = 32_767
AT_ONCE = Backoff(base_seconds=0.0, cap_seconds=0.0, jitter=0.0)


async def test_a_retry_fails_the_job_once_no_attempt_is_left(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, failures_max=2, failures=2)
    assert await worker.settle(job, TransitionEvent.RETRY, code="handler_error") is State.FAILED
    row = await row_of(connection, job)
    assert row["error_code"] == "max_retries_exhausted"
    assert row["error_message"] == "failed 3 times; last: handler_error: it broke"
    assert row["failures"] == 3


async def test_a_job_is_tried_once_more_than_its_retries(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_job(connection, failures_max=2)
    states = []
    while claimed := await worker.claim(1):
        assert claimed[0].attempt == len(states) + 1
        states.append(await worker.settle(claimed[0], TransitionEvent.RETRY, delay=0.0))
        await maintenance.queue_due(worker.line, ROWS_MAX)
    assert states == [State.RETRYING, State.RETRYING, State.FAILED]


async def test_a_job_that_loses_its_worker_too_often_is_failed(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_job(connection)
    states = []
    while len(states) <= CRASHES_MAX + 1 and await worker.claim(1):
        await fall_silent(worker)
        rescued = await rescue(worker)
        states.append(rescued[0].state)
        await maintenance.queue_due(worker.line, ROWS_MAX)
    assert states == [State.QUEUED, *[State.RETRYING] * (CRASHES_MAX - 1), State.FAILED]
    row = await row_of(connection, rescued[0].uuid)
    assert (row["error_code"], row["crashes"], row["failures"]) == (
        "worker_lost",
        CRASHES_MAX + 1,
        0,
    )


@pytest.mark.parametrize("boots", [1, 2])
async def test_jobs_that_fall_together_are_given_up_much_later_than_one_that_falls_alone(
    boots: int, connection: AsyncpgConnection, dsn: str
) -> None:
    """In one worker, or in two workers of one process: whatever killed it, most are bystanders."""
    process = ProcessIdentity(uuid4())
    async with AsyncExitStack() as closing:
        held = [
            await closing.enter_async_context(claimer(dsn, process=process)) for _ in range(boots)
        ]
        await put_job(connection)
        await put_job(connection)
        states: list[set[State]] = []
        while sum([len(await each.claim(2 // boots)) for each in held]) == 2:
            for each in held:
                await fall_silent(each)
            states.append({job.state for job in await rescue(held[0])})
            await maintenance.queue_due(held[0].line, ROWS_MAX)
    again = [{State.RETRYING}] * (CRASHES_TOGETHER_MAX - 1)
    assert states == [{State.QUEUED}, *again, {State.FAILED}]


async def test_what_falls_alone_after_it_fell_with_others_is_given_up_and_they_are_not(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    bystander = await put_job(connection, State.PROCESSING, crashes=CRASHES_MAX)
    poison = await put_job(connection, State.PROCESSING, crashes=CRASHES_MAX)
    await fall_silent(worker)
    assert {job.state for job in await rescue(worker)} == {State.RETRYING}
    await connection.execute(
        recorded("UPDATE jobs SET run_at = now() + interval '1 hour' WHERE id = $1"), bystander.uuid
    )
    await maintenance.queue_due(worker.line, ROWS_MAX)
    (claimed,) = await worker.claim(1)
    assert claimed.uuid == poison.uuid
    assert [(job.uuid, job.state) for job in await rescue(worker)] == [(poison.uuid, State.FAILED)]
    assert (await row_of(connection, bystander))["crashes"] == CRASHES_MAX + 1


async def test_the_wait_after_a_crash_grows_and_is_another_for_each_job(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for crashes in range(CRASHES_TOGETHER_MAX):
        for _ in range(10):
            await put_job(connection, State.PROCESSING, crashes=crashes)
    await fall_silent(worker)
    await rescue(worker, backoff=CRASH_BACKOFF)
    rows = await connection.fetch(
        "SELECT crashes, state, extract(epoch FROM run_at - updated_at)::float8 AS wait FROM jobs"
    )
    first = [row for row in rows if row["crashes"] == 1]
    assert {row["state"] for row in first} == {"queued"}
    assert all(row["wait"] <= 0 for row in first)
    for crashes in range(2, CRASHES_TOGETHER_MAX + 1):
        waits = [row["wait"] for row in rows if row["crashes"] == crashes]
        least = CRASH_BACKOFF.delay(crashes - 2, 0.0)
        assert all(least <= wait <= 2 * least for wait in waits)
        assert len(set(waits)) > 1


@pytest.mark.parametrize(
    ("event", "counter"),
    [
        (TransitionEvent.RETRY, "failures"),
        (TransitionEvent.FAIL, "failures"),
        (TransitionEvent.UNREACHABLE, "unreachables"),
        (TransitionEvent.RELEASE, "interruptions"),
    ],
)
async def test_each_way_to_end_an_attempt_has_its_own_counter(
    event: TransitionEvent, counter: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    await worker.settle(job, event)
    row = await row_of(connection, job)
    counted = {name: row[name] for name in ("failures", "crashes", "interruptions", "unreachables")}
    assert counted == dict.fromkeys(counted, 0) | {counter: 1}


@pytest.mark.parametrize(
    ("event", "counter"),
    [(TransitionEvent.UNREACHABLE, "unreachables"), (TransitionEvent.RELEASE, "interruptions")],
)
async def test_what_may_happen_for_ever_does_not_overflow_its_counter(
    event: TransitionEvent, counter: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, **{counter: SMALLINT_MAX})
    assert await worker.settle(job, event) is not None
    assert (await row_of(connection, job))[counter] == SMALLINT_MAX


async def test_a_released_job_keeps_the_error_of_the_attempt_before(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, error_code="flaky", error_message="once")
    await worker.settle(job, TransitionEvent.RELEASE)
    row = await row_of(connection, job)
    assert (row["error_code"], row["error_message"]) == ("flaky", "once")


async def rescue(worker: Claimer, backoff: Backoff = AT_ONCE) -> list[maintenance.Rescued]:
    return await maintenance.rescue(
        worker.line,
        crashes_max=CRASHES_MAX,
        keep_failed_seconds=KEEP_FAILED_SECONDS,
        rows_max=ROWS_MAX,
        backoff=backoff,
    )
