"""The guard that every other test runs under does refuse."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from coatcheck.domain.ids import new_id
from coatcheck.domain.states import EDGES, INITIAL, State
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import holding, put_job, recorded, state_of

STEPS = [(source, target) for source in State for target in State if source is not target]


async def move(connection: AsyncpgConnection, source: State, target: State) -> None:
    """Write ``target`` over a job in ``source``, keeping every CHECK of the table satisfied."""
    job = await put_job(connection, source)
    write = """
        UPDATE jobs
        SET state = $2::text::job_state, lease = CASE WHEN $3 THEN 1 END,
            payload = CASE WHEN NOT $4 THEN payload END,
            finished_at = CASE WHEN $4 THEN now() END, expires_at = CASE WHEN $4 THEN now() END
        WHERE id = $1
    """
    is_legal = (source, target) in EDGES
    async with holding(connection):
        await connection.execute(
            recorded(write) if is_legal else write,
            job.uuid,
            target.value,
            target.held,
            target.terminal,
        )
    assert await state_of(connection, job) is target


async def begin(connection: AsyncpgConnection, state: State) -> None:
    """Insert a job in ``state``, keeping every CHECK of the table satisfied."""
    await connection.execute(
        recorded("""
        INSERT INTO jobs (org_id, id, lane, endpoint, flow, failures_max, state,
                          lease, finished_at, expires_at)
        VALUES ('acme', gen_random_uuid(), 'bulk', 'demo', '', 0, $1::text::job_state,
                CASE WHEN $2 THEN 1 END, now(), now())
        """),
        state.value,
        state.held,
    )


async def test_every_step_outside_the_table_is_refused_and_no_other(
    connection: AsyncpgConnection,
) -> None:
    for source, target in STEPS:
        if (source, target) in EDGES:
            await move(connection, source, target)
        else:
            with pytest.raises(asyncpg.RaiseError, match=f"cannot go from {source} to {target}"):
                await move(connection, source, target)


async def test_a_job_can_only_begin_staged_or_queued(connection: AsyncpgConnection) -> None:
    for state in State:
        if state in INITIAL:
            await begin(connection, state)
        else:
            with pytest.raises(asyncpg.RaiseError, match=f"cannot begin as {state}"):
                await begin(connection, state)


async def test_a_job_that_stays_where_it_is_is_let_through(connection: AsyncpgConnection) -> None:
    job = await put_job(connection, State.PROCESSING)
    await connection.execute("UPDATE jobs SET progress = 0.5 WHERE id = $1", job.uuid)
    assert await state_of(connection, job) is State.PROCESSING


async def test_a_lease_that_no_claim_leads_to_is_refused(connection: AsyncpgConnection) -> None:
    await put_job(connection, State.QUEUED)
    held = await put_job(connection, State.PROCESSING)
    for statement in (
        "UPDATE jobs SET state = 'dispatching', lease = 1 WHERE state = 'queued'",
        "UPDATE jobs SET lease = 1 WHERE state = 'processing'",
        "DELETE FROM claims",
        "UPDATE claims SET ids = '{}'",
    ):
        with pytest.raises(asyncpg.RaiseError, match="no row of claims leads to job"):
            await connection.execute(statement)
    await connection.execute("DELETE FROM jobs WHERE id = $1", held.uuid)
    await connection.execute("DELETE FROM claims")


async def test_copied_rows_are_guarded_too(connection: AsyncpgConnection) -> None:
    with pytest.raises(asyncpg.RaiseError, match="cannot begin as retrying"):
        await connection.copy_records_to_table(
            "jobs",
            columns=("org_id", "id", "lane", "endpoint", "flow", "failures_max", "state"),
            records=[("acme", "0" * 32, "bulk", "demo", "", 0, "retrying")],
        )


async def test_a_job_that_no_row_of_the_queue_names_is_refused_at_the_commit(
    connection: AsyncpgConnection,
) -> None:
    waiting = await put_job(connection, State.RETRYING)
    due = """
        WITH due AS (DELETE FROM postponed WHERE id = $1)
        UPDATE jobs SET state = 'queued' WHERE id = $1
    """
    with pytest.raises(asyncpg.RaiseError, match="no row of the queue names it"):
        await connection.execute(due, waiting.uuid)
    async with connection.transaction():
        await connection.execute(due, waiting.uuid)
        await connection.execute("DELETE FROM jobs WHERE id = $1", waiting.uuid)


async def test_a_job_that_waits_for_a_time_without_its_row_is_refused_at_the_commit(
    connection: AsyncpgConnection,
) -> None:
    await put_job(connection, State.RETRYING)
    for statement in (
        "UPDATE jobs SET run_at = now() + interval '1 hour' WHERE state = 'retrying'",
        "UPDATE jobs SET error_code = 'x' WHERE state = 'retrying'",
        "UPDATE postponed SET run_at = now() + interval '1 hour'",
        "DELETE FROM postponed",
        "INSERT INTO postponed SELECT 'other', id, run_at, state, lane, NULL, NULL, endpoint, NULL"
        " FROM postponed",
    ):
        with pytest.raises(asyncpg.RaiseError, match="its row of postponed do not agree"):
            await connection.execute(statement)


async def test_a_start_deadline_that_nobody_looks_at_is_refused_at_the_commit(
    connection: AsyncpgConnection,
) -> None:
    await put_job(connection, State.QUEUED, start_deadline=datetime.now(UTC) + timedelta(hours=1))
    for statement in (
        "UPDATE jobs SET start_deadline = now()",
        "UPDATE start_deadlines SET due_at = now() + interval '2 hours'",
        "DELETE FROM start_deadlines",
    ):
        with pytest.raises(asyncpg.RaiseError, match="nobody looks whether the job"):
            await connection.execute(statement)
    await connection.execute("UPDATE start_deadlines SET due_at = now()")


async def test_a_job_that_waits_no_more_and_keeps_its_row_is_refused(
    connection: AsyncpgConnection,
) -> None:
    job = await put_job(connection, State.STAGED)
    for state in ("queued", "failed"):
        with pytest.raises(asyncpg.RaiseError, match=f"is {state}, and keeps its row of postponed"):
            await connection.execute(
                "UPDATE jobs SET state = $2::text::job_state, payload = NULL,"
                " finished_at = now(), expires_at = now() WHERE id = $1",
                job.uuid,
                state,
            )


@pytest.mark.parametrize("state", [State.FAILED, State.CANCELLED])
async def test_an_unsuccessful_job_that_no_list_finds_is_refused_at_the_commit(
    connection: AsyncpgConnection, state: State
) -> None:
    waiting = await put_job(connection)
    end = """
        UPDATE jobs SET state = $2::text::job_state, finished_at = now(), expires_at = now()
        WHERE id = $1
    """
    with pytest.raises(asyncpg.RaiseError, match="unsuccessful_jobs lacks it"):
        await connection.execute(end, waiting.uuid, state.value)
    task = await put_job(connection, run_id=new_id(), task_index=0)
    with pytest.raises(asyncpg.RaiseError, match="ended_tasks lacks it"):
        await connection.execute(end, task.uuid, state.value)
    async with connection.transaction():
        await connection.execute(end, waiting.uuid, state.value)
        await connection.execute("DELETE FROM jobs WHERE id = $1", waiting.uuid)
