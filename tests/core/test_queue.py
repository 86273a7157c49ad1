"""Rows of the queue name queued jobs, and a claim takes from their front."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import pytest

from coatcheck import Engine, Submission
from coatcheck.core.queries import leases
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.states import State, TransitionEvent
from tests.db.blocking import until_blocked
from tests.db.claimer import KEEP_COMPLETED_SECONDS, Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import (
    ENDPOINT,
    ORG,
    connected,
    count_by_state,
    put_flows,
    put_job,
    recorded,
    row_of,
    state_of,
)
from tests.db.stopping import let_readers_stop, stopping

ROW_JOBS_MAX = 64


@pytest.fixture
async def worker(dsn: str) -> AsyncIterator[Claimer]:
    async with claimer(dsn) as registered:
        yield registered


async def queued_ids(connection: AsyncpgConnection) -> list[list[UUID]]:
    """The ids in each row, in the order in which they are claimed."""
    rows = await connection.fetch("SELECT ids FROM queue ORDER BY run_at, id")
    return [row["ids"] for row in rows]


async def submit(engine: Engine, count: int) -> list[UUID]:
    tickets = await engine.submit_many([Submission(ENDPOINT, n, org=ORG) for n in range(count)])
    return sorted(ticket.uuid for ticket in tickets)


@pytest.mark.parametrize("count", [1, 64, 65, 1_000])
async def test_jobs_that_are_submitted_together_share_rows(
    count: int, engine: Engine, connection: AsyncpgConnection
) -> None:
    ids = await submit(engine, count)
    rows = await queued_ids(connection)
    assert [each for row in rows for each in row] == ids
    assert [len(row) for row in rows[:-1]] == [ROW_JOBS_MAX] * ((count - 1) // ROW_JOBS_MAX)


async def test_a_claim_takes_from_the_front_of_a_row_and_leaves_the_rest(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    ids = await submit(engine, 10)
    assert sorted(job.uuid for job in await worker.claim(4)) == ids[:4]
    assert await queued_ids(connection) == [ids[4:]]
    assert sorted(job.uuid for job in await worker.claim(4)) == ids[4:8]
    assert sorted(job.uuid for job in await worker.claim(4)) == ids[8:]
    assert await queued_ids(connection) == []


async def test_a_claim_takes_whole_rows_and_a_part_of_the_last(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    ids = await submit(engine, 200)
    assert sorted(job.uuid for job in await worker.claim(150)) == ids[:150]
    rows = await queued_ids(connection)
    assert [each for row in rows for each in row] == ids[150:]


async def test_a_job_that_is_released_is_claimed_before_those_behind_it(
    engine: Engine, connection: AsyncpgConnection, worker: Claimer
) -> None:
    ids = await submit(engine, 3)
    (first,) = await worker.claim(1)
    assert await worker.settle(first, TransitionEvent.RELEASE) is State.QUEUED
    assert sorted(each for row in await queued_ids(connection) for each in row) == ids
    assert {job.uuid for job in await worker.claim(3)} == set(ids)


async def test_a_cancelled_job_leaves_the_queue(
    engine: Engine, connection: AsyncpgConnection
) -> None:
    ids = await submit(engine, 3)
    for gone in (1, 2, 0):
        await engine.cancel(to_text(ids[gone]), org=ORG)
        left = await count_by_state(connection)
        assert await engine.backlog(ORG, None, 100) == left.get(State.QUEUED, 0)
    assert await queued_ids(connection) == []


async def test_a_job_that_is_queued_while_its_cancellation_waits_leaves_the_queue(
    engine: Engine, dsn: str, connection: AsyncpgConnection
) -> None:
    job = await put_job(connection, State.RETRYING)
    async with connected(dsn) as other:
        async with other.transaction():
            await other.execute(recorded("UPDATE jobs SET state = 'queued'"))
            cancelling = asyncio.create_task(engine.cancel(to_text(job.uuid), org=ORG))
            await until_blocked(connection, "coatcheck pool")
        await cancelling
    assert await state_of(connection, job) is State.CANCELLED
    assert await queued_ids(connection) == []


async def test_what_is_not_queued_any_more_is_left_out_and_removed(
    engine: Engine, dsn: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    ids = await submit(engine, 3)
    async with connected(dsn) as other, other.transaction():
        await other.fetch("SELECT 1 FROM queue FOR UPDATE")
        await engine.cancel(to_text(ids[1]), org=ORG)  # does not wait for the row
    assert await queued_ids(connection) == [ids]
    assert sorted(job.uuid for job in await worker.claim(2)) == [ids[0], ids[2]]
    assert await queued_ids(connection) == []


async def test_a_claim_for_one_job_passes_all_that_are_not_queued_any_more(
    engine: Engine, dsn: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    ids = await submit(engine, 5)
    async with connected(dsn) as other, other.transaction():
        await other.fetch("SELECT 1 FROM queue FOR UPDATE")
        for job in ids[:3]:
            await engine.cancel(to_text(job), org=ORG)
    assert [job.uuid for job in await worker.claim(1)] == [ids[3]]
    assert await queued_ids(connection) == [[ids[4]]]


@pytest.mark.parametrize("ended", [0, 2])
async def test_a_locked_job_keeps_its_place_while_others_of_its_row_are_claimed(
    ended: int, engine: Engine, dsn: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    ids = await submit(engine, 4)
    for job in ids[:ended]:
        await connection.execute(
            recorded(
                "UPDATE jobs SET state = 'cancelled', finished_at = now(), expires_at = now()"
                " WHERE id = $1"
            ),
            job,
        )
    async with connected(dsn) as other, other.transaction():
        await other.fetch("SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE", ids[2])
        claimed = {job.uuid for job in await worker.claim(4)}
        assert claimed == {*ids[ended:]} - {ids[2]}
        assert await queued_ids(connection) == [[ids[2]]]
    assert [job.uuid for job in await worker.claim(4)] == [ids[2]]


async def test_a_claim_that_meets_only_locked_rows_does_not_wait_and_says_so(
    engine: Engine, dsn: str, worker: Claimer
) -> None:
    ids = await submit(engine, 1)

    async def claim() -> tuple[list[UUID], bool]:
        order = worker.order(5)
        claimed, _ = await leases.exchange(worker.line, order, [], KEEP_COMPLETED_SECONDS)
        return [job.uuid for job in claimed], order.was_locked_out

    async with connected(dsn) as other, other.transaction():
        await other.fetch("SELECT 1 FROM queue FOR UPDATE")
        assert await claim() == ([], True)
    assert await claim() == (ids, False)
    assert await claim() == ([], False)


async def test_a_claim_goes_on_behind_rows_that_another_has_locked(
    connection: AsyncpgConnection, dsn: str, engine: Engine, worker: Claimer
) -> None:
    ids = await submit(engine, 3 * ROW_JOBS_MAX)
    async with connected(dsn) as other, other.transaction():
        await other.fetch("SELECT 1 FROM queue ORDER BY run_at, id LIMIT 1 FOR UPDATE")
        claimed = {job.uuid for job in await worker.claim(ROW_JOBS_MAX)}
        assert claimed <= {*ids[ROW_JOBS_MAX:]}
        assert claimed
    assert {job.uuid for job in await worker.claim(len(ids))} | claimed == {*ids}


async def test_a_row_that_another_claim_changed_meanwhile_loses_what_is_claimed(
    connection: AsyncpgConnection, dsn: str, engine: Engine, worker: Claimer
) -> None:
    ids = await submit(engine, 10)
    await connection.execute(
        "INSERT INTO concurrency_limits (org_id, scope, name, held_max)"
        " VALUES ('other', 'endpoint', 'other', 1)"
    )
    await let_readers_stop(connection, "concurrency_limits")
    async with claimer(dsn) as rival:
        async with stopping(rival.line):
            claiming = asyncio.create_task(worker.claim(2))
            await until_blocked(connection, "coatcheck test claimer")
            assert sorted(job.uuid for job in await rival.claim(3)) == ids[:3]
        assert sorted(job.uuid for job in await claiming) == ids[3:5]
    assert await queued_ids(connection) == [ids[5:]]


async def test_a_job_that_commits_after_younger_ones_were_claimed_is_claimed(
    connection: AsyncpgConnection, dsn: str, worker: Claimer
) -> None:
    async with connected(dsn) as other:
        late = other.transaction()
        await late.start()
        await put_flows(other, 1, 3, org=ORG)
        await put_flows(connection, 1, 3, org=ORG)
        assert len(await worker.claim(10)) == 3
        await late.commit()
    assert len(await worker.claim(10)) == 3


async def test_a_claim_gives_jobs_in_the_order_in_which_they_became_due(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    now = datetime.now(UTC)
    due = {new_id(): now - timedelta(seconds=n) for n in range(100)}
    for job, run_at in due.items():
        await put_job(connection, id=job, run_at=run_at)
    claimed = [job.uuid for job in await worker.claim(100)]
    assert claimed == sorted(due, key=due.__getitem__)


async def test_a_job_is_queued_again_whatever_an_older_row_still_says_of_it(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    row = await row_of(connection, job)
    await connection.execute(
        "INSERT INTO queue (org_id, id, lane, endpoint, flow, run_at, ids)"
        " VALUES ($1, $2, 'standard', $3, '', $4, ARRAY[$2::uuid])",
        ORG,
        job.uuid,
        ENDPOINT,
        row["run_at"],
    )
    assert await worker.settle(job, TransitionEvent.RELEASE) is State.QUEUED
    assert [each.uuid for each in await worker.claim(5)] == [job.uuid]
    assert await worker.claim(5) == []
    assert await queued_ids(connection) == []


async def test_a_row_is_known_by_its_last_job(connection: AsyncpgConnection) -> None:
    job = await put_job(connection)
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute(
            "UPDATE queue SET ids = gen_random_uuid() || ids || gen_random_uuid() WHERE id = $1",
            job.uuid,
        )
