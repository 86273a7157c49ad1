"""Attempts are bounded, and what does not count as one spends none."""

from __future__ import annotations

import pytest

from coatcheck.domain.limits import CRASHES_MAX
from coatcheck.domain.states import Event, State
from coatcheck.store import upkeep
from tests.store.claimer import KEEP_FAILED_SECONDS, Claimer
from tests.store.edge_guard import Connection
from tests.store.events_on_a_database import ROWS_MAX, fall_silent
from tests.store.rows import put_job, row_of

SMALLINT_MAX = 32_767


async def test_a_retry_fails_the_job_once_no_attempt_is_left(
    connection: Connection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, failures_max=2, failures=2)
    assert await worker.settle(job, Event.RETRY, code="handler_error") is State.FAILED
    row = await row_of(connection, job)
    assert row["error_code"] == "max_retries_exhausted"
    assert row["error_message"] == "failed 3 times; last: handler_error: it broke"
    assert row["failures"] == 3


async def test_a_job_is_tried_once_more_than_its_retries(
    connection: Connection, worker: Claimer
) -> None:
    await put_job(connection, failures_max=2)
    states = []
    while claimed := await worker.claim(1):
        assert claimed[0].attempt == len(states) + 1
        states.append(await worker.settle(claimed[0], Event.RETRY, delay=0.0))
        await upkeep.stage(worker.line, ROWS_MAX)
    assert states == [State.RETRYING, State.RETRYING, State.FAILED]


async def test_a_job_that_loses_its_worker_too_often_is_failed(
    connection: Connection, worker: Claimer
) -> None:
    await put_job(connection)
    states = []
    while len(states) <= CRASHES_MAX + 1 and await worker.claim(1):
        await fall_silent(worker)
        rescued = await rescue(worker)
        states.append(rescued[0].state)
    assert states == [State.QUEUED] * CRASHES_MAX + [State.FAILED]
    row = await row_of(connection, rescued[0].uuid)
    assert (row["error_code"], row["crashes"], row["failures"]) == (
        "worker_lost",
        CRASHES_MAX + 1,
        0,
    )


@pytest.mark.parametrize(
    ("event", "counter"),
    [
        (Event.RETRY, "failures"),
        (Event.FAIL, "failures"),
        (Event.UNREACHABLE, "unreachables"),
        (Event.RELEASE, "interruptions"),
    ],
)
async def test_each_way_to_end_an_attempt_has_its_own_counter(
    event: Event, counter: str, connection: Connection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    await worker.settle(job, event)
    row = await row_of(connection, job)
    counted = {name: row[name] for name in ("failures", "crashes", "interruptions", "unreachables")}
    assert counted == dict.fromkeys(counted, 0) | {counter: 1}


@pytest.mark.parametrize(
    ("event", "counter"), [(Event.UNREACHABLE, "unreachables"), (Event.RELEASE, "interruptions")]
)
async def test_what_may_happen_for_ever_does_not_overflow_its_counter(
    event: Event, counter: str, connection: Connection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, **{counter: SMALLINT_MAX})
    assert await worker.settle(job, event) is not None
    assert (await row_of(connection, job))[counter] == SMALLINT_MAX


async def test_a_released_job_keeps_the_error_of_the_attempt_before(
    connection: Connection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, error_code="flaky", error_message="once")
    await worker.settle(job, Event.RELEASE)
    row = await row_of(connection, job)
    assert (row["error_code"], row["error_message"]) == ("flaky", "once")


async def rescue(worker: Claimer) -> list[upkeep.Rescued]:
    return await upkeep.rescue(
        worker.line,
        crashes_max=CRASHES_MAX,
        keep_failed_seconds=KEEP_FAILED_SECONDS,
        rows_max=ROWS_MAX,
    )
