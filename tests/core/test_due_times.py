"""Delays and start deadlines, by the database's clock and no other."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from coatcheck.core import Engine, Submission
from coatcheck.core.queries import maintenance
from coatcheck.db.connection import Connection
from coatcheck.domain.states import State
from tests.db.claimer import KEEP_FAILED_SECONDS, Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ENDPOINT, row_of

ROWS_MAX = 100


@pytest.fixture
async def worker(dsn: str) -> AsyncIterator[Claimer]:
    async with claimer(dsn) as registered:
        yield registered


async def database_now(connection: AsyncpgConnection) -> datetime:
    now: datetime = await connection.fetchval("SELECT clock_timestamp()")
    return now


async def let_pass(connection: AsyncpgConnection, job_id: UUID, seconds: float) -> None:
    """Move a job's times back, as if so many seconds had passed."""
    await connection.execute(
        """
        WITH moved AS (
            UPDATE jobs SET run_at = run_at - $2 * interval '1 second',
                            start_deadline = start_deadline - $2 * interval '1 second'
            WHERE id = $1
        ),
        put_off AS (
            UPDATE postponed SET run_at = run_at - $2 * interval '1 second' WHERE id = $1
        ),
        looks AS (
            UPDATE start_deadlines SET due_at = due_at - $2 * interval '1 second' WHERE id = $1
        )
        UPDATE queue SET run_at = run_at - $2 * interval '1 second' WHERE id = $1
        """,
        job_id,
        seconds,
    )


async def test_a_delayed_job_is_not_claimed_before_it_is_due(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    ticket = await engine.submit(ENDPOINT, delay=3600)
    assert ticket.state is State.STAGED
    await let_pass(connection, ticket.uuid, 3000)
    assert await maintenance.queue_due(worker.line, ROWS_MAX) == []
    assert await worker.claim(5) == []
    await let_pass(connection, ticket.uuid, 600)
    assert await maintenance.queue_due(worker.line, ROWS_MAX) == [
        maintenance.DueJob(ticket.uuid, ENDPOINT)
    ]
    assert [job.uuid for job in await worker.claim(5)] == [ticket.uuid]


async def test_a_job_for_a_moment_that_has_passed_is_queued_at_once(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    past = await database_now(connection) - timedelta(seconds=1)
    assert (await engine.submit(ENDPOINT, run_at=past)).state is State.QUEUED
    assert (await engine.submit(ENDPOINT, delay=0)).state is State.QUEUED
    assert (await engine.submit(ENDPOINT, run_at=past + timedelta(hours=1))).state is State.STAGED


async def test_bulk_submissions_can_be_delayed_too(engine: Engine) -> None:
    tickets = await engine.submit_many([Submission(ENDPOINT), Submission(ENDPOINT, delay=60)])
    assert [ticket.state for ticket in tickets] == [State.QUEUED, State.STAGED]


async def test_a_submitter_whose_clock_is_wrong_delays_by_the_database_s_clock(
    engine: Engine, connection: AsyncpgConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ten_minutes_ahead = time.time_ns() + 600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: ten_minutes_ahead)
    monkeypatch.setattr(time, "time", lambda: ten_minutes_ahead / 1e9)
    ticket = await engine.submit(ENDPOINT, delay=60)
    row = await row_of(connection, ticket.uuid)
    assert row["run_at"] - row["created_at"] == timedelta(seconds=60)
    assert abs(row["created_at"] - await database_now(connection)) < timedelta(seconds=300)


async def test_jobs_are_staged_in_the_order_they_are_due(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    tickets = [await engine.submit(ENDPOINT, delay=60 - number) for number in range(6)]
    for ticket in tickets:
        await let_pass(connection, ticket.uuid, 3600)
    assert len(await maintenance.queue_due(worker.line, rows_max=2)) == 2
    assert {job.uuid for job in await worker.claim(5)} == {tickets[5].uuid, tickets[4].uuid}


async def test_the_stager_knows_how_long_it_may_sleep(
    engine: Engine, connection: AsyncpgConnection, dsn: str
) -> None:
    line = Connection(dsn, name="test")
    assert await maintenance.next_due_seconds(line) is None
    await engine.submit(ENDPOINT, delay=1_000)
    ticket = await engine.submit(ENDPOINT, delay=500)
    seconds = await maintenance.next_due_seconds(line)
    assert seconds is not None
    assert 400 < seconds <= 500
    await let_pass(connection, ticket.uuid, 600)
    overdue = await maintenance.next_due_seconds(line)
    assert overdue is not None
    assert overdue < 0
    await line.close()


@pytest.mark.parametrize("options", [{}, {"delay": 3_600}])
async def test_a_job_that_has_not_started_by_its_deadline_fails(
    options: dict[str, float], engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    deadline = await database_now(connection) + timedelta(seconds=60)
    ticket = await engine.submit(ENDPOINT, start_deadline=deadline, **options)
    assert await expire(worker) == []
    await let_pass(connection, ticket.uuid, 61)
    assert await expire(worker) == [ticket.uuid]
    view = await engine.get(ticket.id)
    assert (view.state, view.error_code) == (State.FAILED, "start_deadline_passed")


async def test_a_job_that_has_started_may_run_past_its_start_deadline(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    deadline = await database_now(connection) + timedelta(seconds=60)
    ticket = await engine.submit(ENDPOINT, start_deadline=deadline)
    await worker.claim(1)
    await let_pass(connection, ticket.uuid, 61)
    assert await expire(worker) == []
    assert (await engine.get(ticket.id)).state is State.DISPATCHING


async def expire(worker: Claimer) -> list[UUID]:
    expired = await maintenance.expire_waiting(
        worker.line, keep_failed_seconds=KEEP_FAILED_SECONDS, rows_max=ROWS_MAX
    )
    return [job.uuid for job in expired.jobs]
