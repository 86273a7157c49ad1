"""A run deadline judges what a live holder runs. What a dead or silent one held is a crash."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from coatcheck.core.queries import leases, maintenance
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane
from coatcheck.domain.limits import CRASHES_MAX
from coatcheck.domain.states import HELD, State
from coatcheck.maintenance.jobs import OVERRUN_SLACK_SECONDS
from tests.db.claimer import KEEP_FAILED_SECONDS, Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import ROWS_MAX
from tests.db.rows import put_job, row_of

SEEN = "UPDATE workers SET last_seen_at = now() - $1 * interval '1 second'"
ENDS = dict.fromkeys(HELD, State.QUEUED) | {State.CANCEL_REQUESTED: State.CANCELLED}
"""What becomes of a job that loses its worker for the first time."""


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


async def expire(worker: Claimer) -> list[State]:
    ended = await maintenance.fail_overrun(
        worker.line,
        slack_seconds=OVERRUN_SLACK_SECONDS,
        keep_failed_seconds=KEEP_FAILED_SECONDS,
        rows_max=ROWS_MAX,
    )
    return [job.state for job in ended]


async def rescue(worker: Claimer) -> list[State]:
    rescued = await maintenance.rescue(
        worker.line,
        crashes_max=CRASHES_MAX,
        keep_failed_seconds=KEEP_FAILED_SECONDS,
        rows_max=ROWS_MAX,
    )
    return [job.state for job in rescued]


@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("state", sorted(HELD))
async def test_a_silent_holder_s_job_is_not_judged_by_its_deadline_but_rescued(
    state: State, lane: Lane, connection: AsyncpgConnection, worker: Claimer
) -> None:
    """Last heard of before the job's time was up: nobody knows whether it ran the job by then."""
    allowed = DEFAULT_POLICIES[lane].ack_seconds
    job = await put_job(
        connection, state, lane=lane.value, run_deadline=ago(allowed - 5), failures_max=0
    )
    for silent_seconds in (allowed - 4, allowed + 1):
        await connection.execute(SEEN, silent_seconds)
        assert await expire(worker) == []
    assert await rescue(worker) == [ENDS[state]]
    row = await row_of(connection, job)
    assert (row["crashes"], row["failures"]) == (1, 0)


@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("state", sorted(HELD))
async def test_a_dead_holder_s_job_is_not_judged_by_its_deadline_but_rescued_at_once(
    state: State, lane: Lane, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, state, lane=lane.value, run_deadline=ago(3_600), failures_max=0)
    assert await leases.declare_dead(worker.line, [worker.boot]) == [worker.boot]
    assert await expire(worker) == []
    assert await rescue(worker) == [ENDS[state]]
    row = await row_of(connection, job)
    assert (row["crashes"], row["failures"]) == (1, 0)


async def test_a_holder_that_lived_past_the_deadline_and_then_fell_silent_is_the_rescuer_s(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """The expirer comes first, after a time in which no upkeep ran."""
    job = await put_job(connection, State.PROCESSING, run_deadline=ago(3_600), failures_max=0)
    await connection.execute(SEEN, DEFAULT_POLICIES[Lane.STANDARD].ack_seconds + 1)
    assert await expire(worker) == []
    assert await rescue(worker) == [State.QUEUED]
    assert (await row_of(connection, job))["crashes"] == 1


async def test_a_job_whose_holder_is_forgotten_is_the_rescuer_s(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_job(connection, State.PROCESSING, run_deadline=ago(3_600), failures_max=0)
    await leases.deregister(worker.line, worker.boot)
    assert await expire(worker) == []
    assert await rescue(worker) == [State.QUEUED]


@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("state", sorted(HELD))
async def test_a_live_holder_s_job_that_ran_long_past_its_deadline_has_failed(
    state: State, lane: Lane, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(
        connection,
        state,
        lane=lane.value,
        run_deadline=ago(OVERRUN_SLACK_SECONDS + 10),
        failures_max=0,
    )
    await connection.execute(SEEN, 5.0)
    asked = state is State.CANCEL_REQUESTED
    assert await rescue(worker) == []
    assert await expire(worker) == [State.CANCELLED if asked else State.FAILED]
    row = await row_of(connection, job)
    assert (row["crashes"], row["failures"]) == (0, 1)


@pytest.mark.parametrize("silent_seconds", [0, 5, 40, 80, 100, 140, 4_000])
@pytest.mark.parametrize("overdue_seconds", [0, 15, 45, 60, 100, 150, 3_600])
@pytest.mark.parametrize("expirer_first", [True, False])
async def test_a_job_is_ended_by_one_of_the_two_at_most(
    silent_seconds: float,
    overdue_seconds: float,
    expirer_first: bool,
    connection: AsyncpgConnection,
    worker: Claimer,
) -> None:
    job = await put_job(connection, State.PROCESSING, run_deadline=ago(overdue_seconds))
    await connection.execute(SEEN, silent_seconds)
    for judge in (expire, rescue) if expirer_first else (rescue, expire):
        await judge(worker)
    row = await row_of(connection, job)
    is_silent = silent_seconds > DEFAULT_POLICIES[Lane.STANDARD].ack_seconds
    ran_over = silent_seconds + OVERRUN_SLACK_SECONDS < overdue_seconds
    expected = (1, 0) if is_silent else (0, 1) if ran_over else (0, 0)
    assert (row["crashes"], row["failures"]) == expected
