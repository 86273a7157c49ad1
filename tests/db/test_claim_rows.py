"""The rows of `claims`: written with each lease, and deleted once no job has it."""

from __future__ import annotations

from uuid import UUID

import pytest

from coatcheck.core.queries import leases, maintenance, sql
from coatcheck.db.connection import Connection
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import State, TransitionEvent
from tests.db.claimer import KEEP_COMPLETED_SECONDS, KEEP_FAILED_SECONDS, Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.plans import explain_query
from tests.db.rows import connected, put_job, put_queue

FIRST = ("", -1)


async def rows_of(connection: AsyncpgConnection) -> dict[tuple[str, int], set[UUID]]:
    rows = await connection.fetch("SELECT org_id, lease, ids FROM claims")
    return {(org, lease): set(ids) for org, lease, ids in rows}


def named(*jobs: ClaimedJob) -> dict[tuple[str, int], set[UUID]]:
    """The rows that lead to these jobs and to no others."""
    rows: dict[tuple[str, int], set[UUID]] = {}
    for job in jobs:
        rows.setdefault((job.org, job.lease), set()).add(job.uuid)
    return rows


async def sweep(line: Connection, rows_max: int = 100) -> None:
    after: tuple[str, int] | None = FIRST
    while after is not None:
        after = await maintenance.sweep_claims(line, after, rows_max)


async def test_a_claim_writes_a_row_for_each_organisation(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 3, org="a")
    await put_queue(connection, 2, org="b")
    first, second = await worker.claim(4), await worker.claim(4)
    assert {job.org for job in first} == {"a", "b"}
    assert (len(first), len(second)) == (4, 1)
    assert await rows_of(connection) == named(*first, *second)
    assert await worker.claim(4) == []
    assert len(await rows_of(connection)) == 3


async def test_the_next_exchange_deletes_the_rows_of_leases_that_are_over(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 3, org="a")
    await put_queue(connection, 3, org="b")
    first, second = await worker.claim(4), await worker.claim(2)
    await worker.complete(*first)
    assert await rows_of(connection) == named(*first, *second)
    for _ in range(2):  # as after a lost answer
        await leases.exchange(
            worker.line, worker.order(0), [], KEEP_COMPLETED_SECONDS, [first[0].lease]
        )
        assert await rows_of(connection) == named(*second)


async def test_a_released_claim_takes_its_rows_along(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 2, org="a")
    await put_queue(connection, 2, org="b")
    await put_queue(connection, 2, org="c")
    lost, held = await worker.claim(4), await worker.claim(2)
    await leases.release_claim(worker.line, lost[0].lease, KEEP_FAILED_SECONDS)
    assert await rows_of(connection) == named(*held)


async def test_a_worker_that_deregisters_leaves_only_what_it_holds(
    dsn: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 6)
    async with claimer(dsn) as other:
        done, held, others = await worker.claim(2), await worker.claim(2), await other.claim(2)
        await worker.complete(*done, held[0])
        await other.complete(*others)
        await leases.deregister(worker.line, worker.boot)
    assert await rows_of(connection) == named(*held, *others)


@pytest.mark.parametrize("rows_max", [1, 2, 100])
async def test_a_sweep_deletes_what_nothing_is_held_under(
    rows_max: int, connection: AsyncpgConnection, worker: Claimer
) -> None:
    for org in ("a", "b", "c"):
        await put_queue(connection, 4, org=org)
    over, held, left = await worker.claim(6), await worker.claim(3), await worker.claim(3)
    parked = await put_job(connection, State.PROCESSING, lease=7)
    await worker.complete(*over)
    for job in left:
        await worker.settle(job, TransitionEvent.RETRY)
    await sweep(worker.line, rows_max)
    assert await rows_of(connection) == named(*held, parked)


async def test_a_row_is_shortened_once_most_of_its_jobs_are_over(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 10)
    claimed = await worker.claim(10)
    await worker.complete(*claimed[5:])
    await sweep(worker.line)
    assert await rows_of(connection) == named(*claimed)
    await worker.complete(claimed[4])
    await sweep(worker.line)
    assert await rows_of(connection) == named(*claimed[:4])


async def test_a_sweep_waits_for_no_worker(
    dsn: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 2)
    first, second = await worker.claim(1), await worker.claim(1)
    await worker.complete(*first, *second)
    async with connected(dsn) as deleting, deleting.transaction():
        await deleting.execute("DELETE FROM claims WHERE lease = $1", first[0].lease)
        await sweep(worker.line)
        assert await rows_of(connection) == named(*first)


async def test_a_sweep_looks_at_a_page_and_at_the_jobs_that_it_names(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 100)
    for _ in range(10):
        await worker.claim(10)
    plan = await worker.line.run(
        lambda it: explain_query(
            it, sql, "maintenance/sweep_claims", after_org="", after_lease=-1, rows_max=5
        )
    )
    assert plan.indexes("claims") == {"claims_pkey"}
    assert plan.sequential_scans("claims") == 0
    assert plan.indexes("jobs") == {"jobs_pkey"}
    assert plan.rows_read("jobs") == 50


@pytest.mark.parametrize("name", ["workers/deregister", "maintenance/prune_workers"])
async def test_whoever_asks_about_a_worker_looks_at_its_claims_alone(
    name: str, dsn: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 100)
    for _ in range(10):
        await worker.claim(9)
    async with claimer(dsn) as other:
        held = await other.claim(5)
    await connection.execute(
        "UPDATE workers SET last_seen_at = now() - interval '1 day' WHERE boot = $1", other.boot
    )
    arguments = {"boot": other.boot} if name == "workers/deregister" else {}
    plan = await worker.line.run(lambda it: explain_query(it, sql, name, **arguments))
    assert plan.indexes("claims") >= {"claims_held"}
    assert plan.sequential_scans("claims") == 0
    assert plan.indexes("jobs") == {"jobs_pkey"}
    assert plan.rows_read("jobs") <= len(held)


async def test_the_ids_of_a_large_claim_are_stored_out_of_line_as_they_are(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await put_queue(connection, 500)
    claimed = await worker.claim(500)
    row = await connection.fetchrow(
        "SELECT ids, pg_column_size(ids) AS stored, pg_column_compression(ids) AS method"
        " FROM claims"
    )
    assert row is not None
    assert set(row["ids"]) == {job.uuid for job in claimed}
    assert row["stored"] >= 500 * 16
    assert row["method"] is None
