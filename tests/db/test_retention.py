"""How long ended jobs are kept, and that nothing of them is left after."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from coatcheck.core.queries import maintenance, reports, sql
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import TRANSITIONS, State, TransitionEvent
from tests.db.claimer import KEEP_COMPLETED_SECONDS, KEEP_FAILED_SECONDS, Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.events_on_a_database import happen
from tests.db.rows import ORG, connected, expire, expiries, put_job, row_of
from tests.db.test_transitions import ripe_for

LONG_AGO = datetime.now(UTC) - timedelta(hours=1)
SOON = datetime.now(UTC) + timedelta(hours=1)
LATER = SOON + timedelta(hours=1)
DAY = 86_400

ENDINGS = sorted(
    (state, event) for (state, event), target in TRANSITIONS.items() if target.terminal
)
"""Every way for a job to end."""


def kept_seconds(target: State) -> int:
    return KEEP_COMPLETED_SECONDS if target is State.COMPLETED else KEEP_FAILED_SECONDS


@pytest.mark.parametrize(("state", "event"), ENDINGS)
async def test_at_its_end_a_job_loses_its_payload_unless_it_may_be_retried_and_is_given_a_day_to_go(
    state: State, event: TransitionEvent, connection: AsyncpgConnection, worker: Claimer
) -> None:
    usual = await put_job(connection, state, start_deadline=LONG_AGO)
    own = await put_job(
        connection,
        state,
        start_deadline=LONG_AGO,
        keep_completed_seconds=60,
        keep_failed_seconds=120,
        keeps_input=False,
    )
    for job in (usual, own):
        await happen(event, job, worker)
    target = TRANSITIONS[state, event]
    own_seconds = 60 if target is State.COMPLETED else 120
    left = None if target is State.COMPLETED else b"{}"
    for job, seconds, payload in ((usual, kept_seconds(target), left), (own, own_seconds, None)):
        row = await row_of(connection, job)
        assert State(row["state"]) is target
        assert row["payload"] == payload
        assert row["lease"] is None
        assert row["expires_at"] - row["finished_at"] == timedelta(seconds=seconds)
    assert await expiries(connection) == {
        job.uuid: (await row_of(connection, job))["expires_at"] for job in (usual, own)
    }


async def test_a_job_that_will_run_again_keeps_its_payload(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for event in (
        TransitionEvent.RETRY,
        TransitionEvent.UNREACHABLE,
        TransitionEvent.RELEASE,
        TransitionEvent.CRASH,
        TransitionEvent.CRASH_AGAIN,
    ):
        job = await put_job(connection, State.PROCESSING, payload=b'{"a":1}', **ripe_for(event))
        await happen(event, job, worker)
        row = await row_of(connection, job)
        assert (row["payload"], row["expires_at"], row["finished_at"]) == (b'{"a":1}', None, None)


async def test_pruning_goes_in_chunks_and_ends(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    for _ in range(5):
        await put_job(connection, State.COMPLETED, expires_at=LONG_AGO)
    kept = await put_job(connection, State.COMPLETED)
    waiting = await put_job(connection, State.QUEUED)
    pruned = [(await maintenance.prune(worker.line, rows_max=2)).jobs for _ in range(4)]
    assert pruned == [2, 2, 1, 0]
    left = {row["id"] for row in await connection.fetch("SELECT id FROM jobs")}
    assert left == {kept.uuid, waiting.uuid}


async def test_the_longest_overdue_go_first(connection: AsyncpgConnection, worker: Claimer) -> None:
    jobs = [
        await put_job(connection, State.FAILED, expires_at=LONG_AGO - timedelta(hours=hours))
        for hours in range(4)
    ]
    await maintenance.prune(worker.line, rows_max=2)
    left = {row["id"] for row in await connection.fetch("SELECT id FROM jobs")}
    assert left == {jobs[0].uuid, jobs[1].uuid}


async def test_a_batch_that_ends_is_recorded_in_rows_of_a_hundred(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    jobs = [await put_job(connection, State.PROCESSING) for _ in range(250)]
    other = await put_job(connection, State.PROCESSING, org_id="other")
    longer = await put_job(connection, State.PROCESSING, keep_completed_seconds=10 * DAY)
    await worker.complete(*jobs, other, longer)
    rows = await connection.fetch("SELECT org_id, cardinality(ids) AS jobs FROM job_expiries")
    assert sorted((row["org_id"], row["jobs"]) for row in rows) == [
        (ORG, 1),
        (ORG, 50),
        (ORG, 100),
        (ORG, 100),
        ("other", 1),
    ]
    assert set(await expiries(connection)) == {job.uuid for job in (*jobs, other, longer)}


async def test_a_row_of_jobs_is_pruned_in_parts_no_larger_than_a_chunk(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    jobs = [await put_job(connection, State.PROCESSING) for _ in range(7)]
    await worker.complete(*jobs)
    assert await connection.fetchval("SELECT count(*) FROM job_expiries") == 1
    await expire(connection, *(job.uuid for job in jobs))
    for gone, left in ((3, 4), (3, 1), (1, 0), (0, 0)):
        assert (await maintenance.prune(worker.line, rows_max=3)).jobs == gone
        ids = {row["id"] for row in await connection.fetch("SELECT id FROM jobs")}
        assert len(ids) == left
        assert set(await expiries(connection)) == ids


async def test_a_job_that_is_locked_is_pruned_later(
    dsn: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    jobs = [await put_job(connection, State.PROCESSING) for _ in range(5)]
    await worker.complete(*jobs)
    await expire(connection, *(job.uuid for job in jobs))
    locked = {jobs[0].uuid, jobs[2].uuid}
    async with connected(dsn) as reader, reader.transaction():
        await reader.execute("SELECT FROM jobs WHERE id = ANY ($1) FOR SHARE", locked)
        assert (await maintenance.prune(worker.line, rows_max=3)).jobs == 1
        assert (await maintenance.prune(worker.line, rows_max=10)).jobs == 2
        for due in (await expiries(connection)).values():
            assert due > datetime.now(UTC), "others go first"
        assert set(await expiries(connection)) == locked
    await expire(connection, *locked)
    assert (await maintenance.prune(worker.line, rows_max=10)).jobs == 2
    assert await expiries(connection) == {}


async def test_a_job_that_is_kept_longer_by_hand_is_pruned_then(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    jobs = [await put_job(connection, State.PROCESSING) for _ in range(4)]
    await worker.complete(*jobs)
    await expire(connection, *(job.uuid for job in jobs))
    for job, until in ((jobs[1], SOON), (jobs[2], LATER)):
        await connection.execute("UPDATE jobs SET expires_at = $2 WHERE id = $1", job.uuid, until)
    assert (await maintenance.prune(worker.line, rows_max=10)).jobs == 2
    assert await expiries(connection) == {jobs[1].uuid: SOON, jobs[2].uuid: SOON}
    await expire(connection, jobs[1].uuid)
    assert (await maintenance.prune(worker.line, rows_max=10)).jobs == 1
    assert await expiries(connection) == {jobs[2].uuid: LATER}


async def test_two_that_prune_at_once_take_different_jobs(
    dsn: str, connection: AsyncpgConnection, worker: Claimer
) -> None:
    for _ in range(4):
        await put_job(connection, State.COMPLETED, expires_at=LONG_AGO)
    statement = sql("maintenance/prune").replace("/* removed with jobs */\n", "")
    async with connected(dsn) as other, other.transaction():
        (row,) = await other.fetch(statement, 2)
        assert row["jobs"] == 2
        assert (await maintenance.prune(worker.line, rows_max=10)).jobs == 2
    assert await connection.fetchval("SELECT count(*) FROM jobs") == 0


async def test_jobs_that_are_already_gone_are_passed_over(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    gone = await put_job(connection, State.COMPLETED, expires_at=LONG_AGO)
    await put_job(connection, State.COMPLETED, expires_at=LONG_AGO)
    await connection.execute("DELETE FROM jobs WHERE id = $1", gone.uuid)
    assert (await maintenance.prune(worker.line, rows_max=10)).jobs == 1
    assert await expiries(connection) == {}


async def test_a_job_goes_with_its_events_and_artifacts_and_names_their_blobs(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    gone = await ended_job_with_things(connection, worker, "blob 1", "blob 2")
    kept = await ended_job_with_things(connection, worker, "blob 3")
    await expire(connection, gone.uuid)
    pruned = await maintenance.prune(worker.line, rows_max=10)
    assert pruned.jobs == 1
    assert sorted(blob.blob_key for blob in pruned.blobs) == ["blob 1", "blob 2"]
    for table in ("job_events", "artifacts"):
        rows = await connection.fetch(f"SELECT DISTINCT job_id FROM {table}")
        assert [row["job_id"] for row in rows] == [kept.uuid]


async def test_a_pruned_job_is_no_longer_among_the_unsuccessful(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    ends = (State.COMPLETED, State.FAILED, State.CANCELLED)
    gone = [await put_job(connection, state, expires_at=LONG_AGO) for state in ends]
    kept = [await put_job(connection, state) for state in ends]
    assert (await maintenance.prune(worker.line, rows_max=10)).jobs == len(gone)
    rows = await connection.fetch(
        "SELECT u.id, u.state::text FROM unsuccessful_jobs AS u ORDER BY u.state"
    )
    assert [(row["id"], row["state"]) for row in rows] == [
        (kept[1].uuid, "failed"),
        (kept[2].uuid, "cancelled"),
    ]


async def test_what_a_product_has_of_a_job_goes_with_it(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    await connection.execute("CREATE TABLE echoes (org_id text, job_id uuid)")
    gone = await put_job(connection, State.COMPLETED, expires_at=LONG_AGO)
    kept = await put_job(connection, State.COMPLETED)
    for job in (gone, kept):
        await connection.execute("INSERT INTO echoes VALUES ($1, $2)", job.org, job.uuid)
    removal = "DELETE FROM echoes AS e USING old AS o WHERE e.org_id = o.org_id AND e.job_id = o.id"
    assert (await maintenance.prune(worker.line, 10, (removal,))).jobs == 1
    assert await connection.fetchval("SELECT job_id FROM echoes") == kept.uuid
    assert (await maintenance.prune(worker.line, 10, ())).jobs == 0, "without any product as well"


async def ended_job_with_things(
    connection: AsyncpgConnection, worker: Claimer, *blob_keys: str
) -> ClaimedJob:
    job = await put_job(connection, State.PROCESSING)
    await reports.add_events(
        worker.line, [(job, "log", b"{}"), (job, "text", b"hello")], write_id=1
    )
    for key in blob_keys:
        await reports.add_artifact(
            worker.line,
            job,
            name=f"{key}.txt",
            blob_key=key,
            media_type="text/plain",
            size=1,
            sha256=b"\0" * 32,
        )
    await worker.complete(job)
    return job
