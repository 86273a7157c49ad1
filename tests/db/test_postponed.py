"""The rows of `postponed`: one for each job that waits for a time, and none for the others."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from coatcheck import Engine
from coatcheck.core.queries import jobs, maintenance, sql
from coatcheck.domain.states import State, TransitionEvent
from tests.db.blocking import until_blocked
from tests.db.claimer import KEEP_FAILED_SECONDS, Claimer
from tests.db.edge_guard import AsyncpgConnection, unguarded
from tests.db.rows import ENDPOINT, ORG, connected, put_job, recorded, row_of, state_of

ROWS_MAX = 100
LATER = datetime.now(UTC) + timedelta(hours=1)


async def rows_of(connection: AsyncpgConnection) -> dict[UUID, datetime]:
    rows = await connection.fetch("SELECT id, run_at FROM postponed")
    return {row["id"]: row["run_at"] for row in rows}


async def due(worker: Claimer) -> list[UUID]:
    return [job.uuid for job in await maintenance.queue_due(worker.line, ROWS_MAX)]


async def test_a_job_has_a_row_while_it_waits_for_a_time(
    dsn: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    async with Engine(dsn) as engine:
        await engine.submit(ENDPOINT)
        ticket = await engine.submit(ENDPOINT, delay=60)
    assert await rows_of(connection) == {
        ticket.uuid: (await row_of(connection, ticket.uuid))["run_at"]
    }
    await connection.execute(recorded("UPDATE jobs SET run_at = now() WHERE state = 'staged'"))
    assert await due(worker) == [ticket.uuid]
    assert await rows_of(connection) == {}

    first, second = await worker.claim(2)
    await worker.settle(first, TransitionEvent.RETRY, delay=60)
    await worker.settle(second, TransitionEvent.RELEASE)
    retried = await row_of(connection, first)
    assert await rows_of(connection) == {first.uuid: retried["run_at"]}
    await jobs.cancel(worker.line, first.org, first.uuid, KEEP_FAILED_SECONDS)
    assert await rows_of(connection) == {}


@pytest.mark.parametrize("state", [State.STAGED, State.RETRYING])
async def test_a_job_that_a_statement_has_locked_keeps_its_row(
    dsn: str, connection: AsyncpgConnection, worker: Claimer, state: State
) -> None:
    job, other = [await put_job(connection, state) for _ in range(2)]
    async with connected(dsn) as busy, busy.transaction():
        await busy.fetch("SELECT FROM jobs WHERE id = $1 FOR UPDATE", job.uuid)
        assert await due(worker) == [other.uuid]
        assert list(await rows_of(connection)) == [job.uuid]
    assert await due(worker) == [job.uuid]


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_row_that_a_cancel_could_not_see_is_not_shown_and_goes_when_it_is_due(
    connection: AsyncpgConnection, worker: Claimer, is_deleted: bool
) -> None:
    """The cancel waited for the retry, whose row was not there when the cancel began."""
    job = await put_job(connection, State.PROCESSING, run_id=UUID(int=1), task_index=0)
    async with connection.transaction():
        await sql.fetch(
            connection,
            "claims/settle",
            orgs=[job.org],
            ids=[job.uuid],
            leases=[job.lease],
            events=["retry"],
            error_codes=["x"],
            error_messages=["y"],
            delay_seconds=[0.0],
            ran_seconds=[0.5],
            keep_seconds=KEEP_FAILED_SECONDS,
        )
        asked = asyncio.create_task(
            jobs.cancel(worker.line, job.org, job.uuid, KEEP_FAILED_SECONDS)
        )
        await until_blocked(connection, "coatcheck test claimer")
    answer = await asked
    assert answer is not None
    assert (answer.before, answer.after) == (State.RETRYING, State.CANCELLED)
    assert list(await rows_of(connection)) == [job.uuid]
    shown = await sql.fetch(connection, "explain/next_of_run", org=job.org, run=UUID(int=1))
    assert shown == []

    if is_deleted:
        await connection.execute("DELETE FROM jobs")
    assert await due(worker) == []
    assert await rows_of(connection) == {}
    if not is_deleted:
        assert await state_of(connection, job) is State.CANCELLED


async def test_a_job_that_waits_again_replaces_the_row_that_was_left(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    left: dict[str, Any] = {"org_id": ORG, "id": job.uuid, "run_at": LATER, "endpoint": "old"}
    async with unguarded(connection):
        await connection.execute(
            "INSERT INTO postponed (org_id, id, run_at, endpoint, state, lane)"
            " VALUES ($1, $2, $3, $4, 'staged', 'bulk')",
            *left.values(),
        )
    await worker.settle(job, TransitionEvent.RETRY, delay=0)
    row = await connection.fetchrow("SELECT * FROM postponed")
    written = await row_of(connection, job)
    assert {**row} == {name: written[name] for name in row.keys()}  # noqa: SIM118
    assert await due(worker) == [job.uuid]


async def test_the_loop_takes_a_bounded_number_those_due_first(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    moments = [datetime.now(UTC) - timedelta(minutes=number) for number in range(5)]
    made = [await put_job(connection, State.RETRYING, run_at=moment) for moment in moments]
    taken = await maintenance.queue_due(worker.line, 2)
    assert {job.uuid for job in taken} == {made[4].uuid, made[3].uuid}
    assert set(await rows_of(connection)) == {job.uuid for job in made[:3]}
