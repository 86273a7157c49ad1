"""The rows of `start_deadlines`: when to look whether a job has started in time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from coatcheck import Engine
from coatcheck.core.queries import maintenance
from coatcheck.core.queries.maintenance import Expired
from coatcheck.domain.states import State, TransitionEvent
from tests.db.blocking import until_blocked
from tests.db.claimer import KEEP_FAILED_SECONDS, Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ENDPOINT, connected, miss_start, put_job, state_of
from tests.db.stopping import let_readers_stop, stopping

LONG_AGO = datetime.now(UTC) - timedelta(hours=1)
WAITING = [State.STAGED, State.QUEUED, State.RETRYING]
RUNNING = [State.DISPATCHING, State.PROCESSING, State.FINALIZING, State.CANCEL_REQUESTED]
ENDED = [State.COMPLETED, State.FAILED, State.CANCELLED]


async def expire(worker: Claimer, rows_max: int = 100) -> Expired:
    return await maintenance.expire_waiting(
        worker.line, keep_failed_seconds=KEEP_FAILED_SECONDS, rows_max=rows_max
    )


async def looks(connection: AsyncpgConnection) -> dict[UUID, float]:
    """The jobs that will be looked at, and in how many seconds."""
    rows = await connection.fetch(
        "SELECT id, extract(epoch FROM due_at - now())::float8 AS seconds FROM start_deadlines"
    )
    return {row["id"]: row["seconds"] for row in rows}


async def test_only_a_job_with_a_deadline_has_a_row_which_is_looked_at_within_a_day(
    dsn: str, connection: AsyncpgConnection
) -> None:
    now: datetime = await connection.fetchval("SELECT now()")
    async with Engine(dsn) as engine:
        await engine.submit(ENDPOINT, delay=60)
        soon = await engine.submit(ENDPOINT, start_deadline=now + timedelta(hours=1))
        late = await engine.submit(ENDPOINT, start_deadline=now + timedelta(days=9), delay=60)
    found = await looks(connection)
    assert found.keys() == {soon.uuid, late.uuid}
    assert 3_500 < found[soon.uuid] <= 3_600
    assert 86_300 < found[late.uuid] <= 86_400


@pytest.mark.parametrize("state", WAITING)
async def test_a_job_that_waits_fails_and_its_row_goes(
    connection: AsyncpgConnection, worker: Claimer, state: State
) -> None:
    job = await put_job(connection, state, start_deadline=LONG_AGO)
    expired = await expire(worker)
    assert ([each.uuid for each in expired.jobs], expired.rows) == ([job.uuid], 1)
    assert await state_of(connection, job) is State.FAILED
    assert await looks(connection) == {}
    assert await expire(worker) == Expired([], 0)


@pytest.mark.parametrize("state", RUNNING)
async def test_a_job_that_runs_is_looked_at_again_in_some_seconds(
    connection: AsyncpgConnection, worker: Claimer, state: State
) -> None:
    job = await put_job(connection, state, start_deadline=LONG_AGO)
    assert await expire(worker) == Expired([], 1)
    assert await expire(worker) == Expired([], 0)
    assert 4 < (await looks(connection))[job.uuid] <= 5
    assert await state_of(connection, job) is state


async def test_a_job_that_ran_in_time_and_waits_for_a_retry_fails_at_the_next_look(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, start_deadline=LONG_AGO)
    await expire(worker)
    await worker.settle(job, TransitionEvent.RETRY, delay=60)
    await connection.execute("UPDATE start_deadlines SET due_at = now()")
    assert [each.uuid for each in (await expire(worker)).jobs] == [job.uuid]


@pytest.mark.parametrize("state", ENDED)
async def test_the_row_of_a_job_that_has_ended_goes(
    connection: AsyncpgConnection, worker: Claimer, state: State
) -> None:
    for _ in range(3):
        await put_job(connection, state, start_deadline=LONG_AGO)
    await connection.execute("DELETE FROM jobs WHERE id = (SELECT id FROM start_deadlines LIMIT 1)")
    assert await expire(worker, rows_max=2) == Expired([], 2)
    assert await expire(worker, rows_max=2) == Expired([], 1)
    assert await looks(connection) == {}


async def test_a_deadline_further_than_a_day_away_is_looked_at_again_then(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    later = datetime.now(UTC) + timedelta(days=9)
    job = await put_job(connection, State.QUEUED, start_deadline=later)
    await connection.execute("UPDATE start_deadlines SET due_at = now()")
    assert await expire(worker) == Expired([], 1)
    assert 86_300 < (await looks(connection))[job.uuid] <= 86_400
    assert await state_of(connection, job) is State.QUEUED
    await miss_start(connection, job.uuid)
    assert [each.uuid for each in (await expire(worker)).jobs] == [job.uuid]


async def test_a_job_that_somebody_has_locked_is_looked_at_next_time(
    dsn: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.QUEUED, start_deadline=LONG_AGO)
    async with connected(dsn) as busy, busy.transaction():
        await busy.fetch("SELECT FROM jobs WHERE id = $1 FOR UPDATE", job.uuid)
        assert await expire(worker) == Expired([], 0)
    assert [each.uuid for each in (await expire(worker)).jobs] == [job.uuid]


async def test_a_job_that_is_queued_during_the_look_fails_at_the_next_one(
    dsn: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.RETRYING, start_deadline=LONG_AGO, run_at=LONG_AGO)
    await let_readers_stop(connection, "start_deadlines")
    async with claimer(dsn) as other:
        async with stopping(connection):
            looking = asyncio.create_task(expire(worker))
            await until_blocked(connection, "coatcheck test claimer")
            (due,) = await maintenance.queue_due(other.line, 100)
            assert due.uuid == job.uuid
        await looking
    await expire(worker)
    assert await state_of(connection, job) is State.FAILED
    assert await looks(connection) == {}
