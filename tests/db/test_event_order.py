"""A job's events become visible in the order of their numbers: a resumed reader misses none."""

from __future__ import annotations

import asyncio

from coatcheck.core.queries import reports, sql
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import State, TransitionEvent
from tests.db.blocking import until_blocked
from tests.db.claimer import Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import put_job

BLOCKED = "coatcheck test claimer"
BATCH = 7


async def add_without_commit(connection: AsyncpgConnection, job: ClaimedJob, data: bytes) -> None:
    await sql.fetch(
        connection,
        "reports/add",
        orgs=[job.org],
        ids=[job.uuid],
        leases=[job.lease],
        kinds=["text"],
        data=[data],
        write_id=BATCH,
    )


async def read(connection: AsyncpgConnection, job: ClaimedJob) -> list[tuple[str, bytes]]:
    rows = await sql.fetch(
        connection,
        "reports/read",
        org=job.org,
        job=job.uuid,
        after=0,
        limit=100,
        bytes_max=2**62,
    )
    return [(row["kind"], row["data"]) for row in rows]


async def test_a_second_writer_draws_its_number_after_the_first_has_committed(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """The first lost its connection and still runs; the worker has made another and goes on."""
    job = await put_job(connection, State.PROCESSING)
    async with connection.transaction():
        await add_without_commit(connection, job, b"first")
        adding = asyncio.create_task(
            reports.add_events(worker.line, [(job, "text", b"second")], write_id=8)
        )
        await until_blocked(connection, BLOCKED)
    await adding
    assert await read(connection, job) == [("text", b"first"), ("text", b"second")]


async def test_an_alert_comes_after_what_the_job_said(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, failures=3)
    async with connection.transaction():
        await add_without_commit(connection, job, b"last words")
        settling = asyncio.create_task(worker.settle(job, TransitionEvent.RETRY))
        await until_blocked(connection, BLOCKED)
    assert await settling is State.FAILED
    assert [kind for kind, _ in await read(connection, job)] == ["text", "alert"]


async def test_whether_a_lost_statement_took_effect_is_asked_after_its_end(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """Asked while it still runs, the answer would be no, and its lines would be stored twice."""
    job = await put_job(connection, State.PROCESSING)
    async with connection.transaction():
        await add_without_commit(connection, job, b"once")
        asking = asyncio.create_task(reports.events_added(worker.line, job, BATCH))
        await until_blocked(connection, BLOCKED)
    assert await asking is True


async def test_writers_of_different_jobs_do_not_wait_for_each_other(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job, other = [await put_job(connection, State.PROCESSING) for _ in range(2)]
    async with connection.transaction():
        await add_without_commit(connection, job, b"mine")
        await reports.add_events(worker.line, [(other, "text", b"theirs")], write_id=8)
    assert await read(connection, other) == [("text", b"theirs")]
