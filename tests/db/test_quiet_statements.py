"""The statements of quiet times: a claim by name, and a completion that notifies."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coatcheck.core.queries import leases, limits
from coatcheck.core.queries.leases import FinishedJob
from coatcheck.core.ready_notification import NamedJob
from coatcheck.db.notifications import CHANGED
from coatcheck.domain.ids import new_id
from coatcheck.domain.job import ClaimedJob, ConcurrencyLimit
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.domain.webhooks import INTERNAL
from tests.db.claimer import KEEP_FAILED_SECONDS, Claimer, claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ENDPOINT, ORG, connected, expiries, put_job, row_of, state_of
from tests.db.test_webhook_moves import put_endpoint

EARLIER = datetime.now(UTC) - timedelta(minutes=1)
GONE: tuple[list[ClaimedJob], bool] = ([], False)
STILL_WAITS: tuple[list[ClaimedJob], bool] = ([], True)


def named(job: ClaimedJob, **changes: Any) -> NamedJob:
    names = {"org": job.org, "id": job.uuid, "lane": job.lane.value, "endpoint": job.endpoint}
    return NamedJob(**{**names, **changes})


async def claim(worker: Claimer, name: NamedJob) -> tuple[list[ClaimedJob], bool]:
    return await leases.claim_named(worker.line, name, 60.0, worker.order(1).lease)


async def claimed_as(worker: Claimer, job: ClaimedJob) -> ClaimedJob:
    (claimed,), waits = await claim(worker, named(job))
    assert not waits
    return claimed


async def finders(connection: AsyncpgConnection) -> tuple[list[Any], list[Any]]:
    """What the queue names, and what the claims name."""
    queue = await connection.fetch("SELECT org_id, ids FROM queue ORDER BY org_id, id")
    claims = await connection.fetch("SELECT org_id, lease, ids FROM claims ORDER BY org_id, lease")
    return [tuple(row) for row in queue], [tuple(row) for row in claims]


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {
            "flow": "a key",
            "lane": "urgent",
            "timeout_seconds": 5.0,
            "request_id": "r",
            "failures": 2,
        },
        {"webhook": INTERNAL, "payload": b'{"n": 1}', "unreachables": 1},
    ],
)
async def test_it_claims_as_a_claim_that_looks_does(
    columns: dict[str, Any], connection: AsyncpgConnection, worker: Claimer
) -> None:
    looked_for = await put_job(connection, **columns)
    (expected,) = await worker.claim({Lane(columns.get("lane", "standard")): 1})
    job = await put_job(connection, **columns)
    claimed = await claimed_as(worker, job)
    rows = [dict(await row_of(connection, each)) for each in (looked_for, job)]
    for row in rows:
        assert row["run_deadline"] - row["dispatched_at"] == timedelta(
            seconds=columns.get("timeout_seconds", 60.0)
        )
        for moment in ("id", "lease", "created_at", "run_at", "updated_at", "dispatched_at"):
            assert row.pop(moment) is not None
        del row["run_deadline"]
    assert rows[0] == rows[1]
    for field in ("org", "lane", "endpoint", "queue_key", "payload", "attempt", "failures"):
        assert getattr(claimed, field) == getattr(expected, field)
    for field in ("unreachables", "timeout_seconds", "request_id", "traceparent"):
        assert getattr(claimed, field) == getattr(expected, field)
    assert claimed.uuid == job.uuid
    queue, claims = await finders(connection)
    assert queue == []
    assert (ORG, claimed.lease, [job.uuid]) in claims


async def test_what_it_claimed_can_be_completed_and_released(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    kept, lost = await put_job(connection), await put_job(connection, org_id="others")
    claimed = [await claimed_as(worker, job) for job in (kept, lost)]
    assert await worker.complete(claimed[0]) == 1
    released = await leases.release_claim(worker.line, claimed[1].lease, KEEP_FAILED_SECONDS)
    assert released == [lost.uuid]
    assert await state_of(connection, kept) is State.COMPLETED
    assert await state_of(connection, lost) is State.QUEUED


@pytest.mark.parametrize("state", [state for state in State if state is not State.QUEUED])
async def test_a_job_that_does_not_wait_is_left_alone(
    state: State, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, state)
    before = await row_of(connection, job)
    assert await claim(worker, named(job)) == GONE
    assert await row_of(connection, job) == before


async def test_an_unknown_id_and_one_of_another_organisation_are_nothing(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection)
    assert await claim(worker, named(job, id=new_id())) == GONE
    assert await claim(worker, named(job, org="others")) == GONE
    assert await state_of(connection, job) is State.QUEUED


@pytest.mark.parametrize("wrong", [{"lane": "bulk"}, {"lane": "none"}, {"endpoint": "demo.other"}])
async def test_a_job_that_is_not_as_named_is_left_to_a_look(
    wrong: dict[str, str], connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection)
    assert await claim(worker, named(job, **wrong)) == STILL_WAITS


async def test_it_passes_nobody_of_its_flow(connection: AsyncpgConnection, worker: Claimer) -> None:
    first = await put_job(connection, flow="a", run_at=EARLIER)
    second = await put_job(connection, flow="a")
    elsewhere = [
        await put_job(connection, run_at=EARLIER, **other)
        for other in ({"flow": "b"}, {"org_id": "others", "flow": "a"}, {"lane": "bulk"})
    ]
    assert await claim(worker, named(second)) == STILL_WAITS
    assert (await claimed_as(worker, first)).uuid == first.uuid
    assert (await claimed_as(worker, second)).uuid == second.uuid
    for job in elsewhere:
        assert await state_of(connection, job) is State.QUEUED


async def test_it_leaves_a_row_that_names_several_jobs(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    jobs = [await put_job(connection) for _ in range(2)]
    async with connection.transaction():
        await connection.execute("DELETE FROM queue")
        await connection.execute("UPDATE jobs SET run_at = now()")
        await connection.execute(
            "INSERT INTO queue (org_id, id, lane, endpoint, flow, run_at, ids)"
            " VALUES ($1, $2, 'standard', $3, '', now(), $4)",
            ORG,
            jobs[-1].uuid,
            ENDPOINT,
            [job.uuid for job in jobs],
        )
    assert await claim(worker, named(jobs[-1])) == STILL_WAITS
    assert len(await worker.claim(5)) == 2


LIMITS = [
    ConcurrencyLimit(ORG, "org", "", 5),
    ConcurrencyLimit(ORG, "endpoint", ENDPOINT, 5),
    ConcurrencyLimit("*", "endpoint", ENDPOINT, 5),
    ConcurrencyLimit(ORG, "flow", "a", 5),
    ConcurrencyLimit("others", "flow", "b", 0),
]


@pytest.mark.parametrize("limit", LIMITS)
async def test_with_any_limit_it_claims_nothing(
    limit: ConcurrencyLimit, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, flow="a")
    await limits.set_limit(worker.line, limit)
    assert await claim(worker, named(job)) == STILL_WAITS


async def test_with_the_limits_of_a_run_it_claims_nothing(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection)
    await connection.execute("INSERT INTO run_limits (org_id, run, held_max) VALUES ('x', 'y', 0)")
    assert await claim(worker, named(job)) == STILL_WAITS


@pytest.mark.parametrize("webhook", [1, 2, 4])
async def test_a_job_with_webhooks_is_left_to_a_look(
    webhook: int, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, webhook=webhook)
    assert await claim(worker, named(job)) == STILL_WAITS


async def test_with_an_endpoint_that_hears_of_jobs_it_claims_nothing(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection)
    await put_endpoint(connection, "job.dispatching")
    assert await claim(worker, named(job)) == STILL_WAITS


@pytest.mark.parametrize("table", ["queue", "jobs"])
async def test_it_waits_for_nobody(
    table: str, dsn: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection)
    async with connected(dsn) as rival, rival.transaction():
        await rival.fetch(f"SELECT FROM {table} FOR UPDATE")
        assert await claim(worker, named(job)) == STILL_WAITS
    assert (await claimed_as(worker, job)).uuid == job.uuid


async def test_of_several_workers_one_claims_it(dsn: str, connection: AsyncpgConnection) -> None:
    async with claimer(dsn) as one, claimer(dsn) as two, claimer(dsn) as three:
        for _ in range(20):
            job = await put_job(connection)
            answers = await asyncio.gather(
                claim(one, named(job)), two.claim(5), claim(three, named(job))
            )
            claimed = [*answers[0][0], *answers[1], *answers[2][0]]
            while not claimed:  # each met the lock of another that got nothing in the end
                claimed = await two.claim(5)
            assert [each.uuid for each in claimed] == [job.uuid]
            row = await row_of(connection, job)
            assert row["lease"] == claimed[0].lease


async def test_a_completion_that_notifies_writes_what_an_exchange_does(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    columns = {"flow": "a", "failures": 1, "run_seconds": 2.5, "keep_completed_seconds": 99}
    jobs = [await put_job(connection, State.PROCESSING, **columns) for _ in range(2)]
    assert await worker.complete(jobs[0], result=b"[1]") == 1
    assert await worker.complete_and_notify(jobs[1], result=b"[1]") == 1
    rows = [dict(await row_of(connection, job)) for job in jobs]
    for row in rows:
        assert row.pop("expires_at") - row.pop("finished_at") == timedelta(seconds=99)
        for moment in ("id", "created_at", "run_at", "updated_at", "dispatched_at", "started_at"):
            assert row.pop(moment) is not None
    assert rows[0] == rows[1]
    assert rows[0]["result"] == b"[1]"
    assert (await expiries(connection)).keys() == {job.uuid for job in jobs}


async def test_the_notification_comes_with_the_results_that_it_is_about(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    await connection.add_listener(CHANGED, lambda *said: heard.put_nowait(said[-1]))
    jobs = [await put_job(connection, State.PROCESSING) for _ in range(3)]
    assert await worker.complete_and_notify(*jobs) == 3
    assert await heard.get() == ",".join(job.uuid.hex for job in jobs)
    for job in jobs:
        assert await state_of(connection, job) is State.COMPLETED


async def test_claims_that_are_over_are_deleted_with_it(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    first, second = await put_job(connection), await put_job(connection)
    claimed = [await claimed_as(worker, job) for job in (first, second)]
    assert await worker.complete_and_notify(claimed[0]) == 1
    done = FinishedJob(claimed[1], b"null", 0.5)
    over = [claimed[0].lease]
    accepted = await leases.complete_and_notify(worker.line, [done], 60, over, (CHANGED, ""))
    assert accepted == {second.uuid}
    _, claims = await finders(connection)
    assert [lease for _, lease, _ in claims] == [claimed[1].lease]
