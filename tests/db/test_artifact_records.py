"""What remains known of an artifact that is gone, and who may take one away."""

from __future__ import annotations

from datetime import timedelta

from coatcheck.core.queries import artifacts, maintenance, reports
from coatcheck.db.connection import Connection
from coatcheck.domain.artifacts import ArtifactRecord, BlobToDelete, Disposal
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.states import State
from coatcheck.products.batches.queries import sql
from coatcheck.products.batches.repository import BatchRepository
from tests.db.claimer import Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.long_runs import put_long_run
from tests.db.rows import ORG, expire, holding, put_job, row_of

HASH = bytes(range(32))
FLOW = "docs.v1.post__draw"


async def attach(
    line: Connection, job: ClaimedJob, blob_key: str, name: str = "plan.svg"
) -> tuple[bool, BlobToDelete | None]:
    return await reports.add_artifact(
        line,
        job,
        name=name,
        blob_key=blob_key,
        media_type="image/svg+xml",
        size=6,
        sha256=HASH,
    )


async def record_of(line: Connection, job: ClaimedJob, name: str = "plan.svg") -> ArtifactRecord:
    record = await artifacts.record(line, job.org, job.uuid, name)
    assert record is not None
    return record


async def test_an_artifact_that_is_there_has_one_copy_that_nobody_deleted(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, owner="user:ann", flow=FLOW)
    assert await attach(worker.line, job, "blob") == (True, None)
    record = await record_of(worker.line, job)
    assert (record.org, record.job, record.name) == (ORG, job.uuid, "plan.svg")
    assert (record.owner, record.endpoint, record.queue_key) == ("user:ann", job.endpoint, FLOW)
    assert (record.media_type, record.size, record.sha256) == ("image/svg+xml", 6, HASH)
    [copy] = record.copies
    assert (copy.deleted_at, copy.disposal, record.complete) == (None, None, False)


async def test_what_was_pruned_is_known_and_said_to_be_gone_only_once_it_is(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING, owner="user:ann", flow=FLOW)
    await attach(worker.line, job, "blob")
    [stored] = (await record_of(worker.line, job)).copies
    await worker.complete(job)
    await expire(connection, job.uuid)
    pruned = await maintenance.prune(worker.line, rows_max=10)
    [blob] = pruned.blobs
    assert (blob.org, blob.job, blob.blob_key) == (ORG, job.uuid, "blob")
    left = await record_of(worker.line, job)
    assert (left.owner, left.queue_key, left.sha256) == ("user:ann", FLOW, HASH)
    assert [copy.deleted_at for copy in left.copies] == [None]
    await artifacts.close(worker.line, pruned.blobs)
    gone = await record_of(worker.line, job)
    [copy] = gone.copies
    assert (copy.stored_at, copy.disposal) == (stored.stored_at, Disposal.RETENTION)
    assert gone.complete


async def test_a_job_that_made_nothing_leaves_no_record(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.COMPLETED)
    await expire(connection, job.uuid)
    pruned = await maintenance.prune(worker.line, rows_max=10)
    assert (pruned.jobs, pruned.blobs) == (1, [])
    assert await connection.fetchval("SELECT count(*) FROM artifact_records") == 0


async def test_what_is_known_of_a_remote_call_and_of_a_generation_goes_with_the_job(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    jobs = [await put_job(connection, State.COMPLETED) for _ in range(2)]
    for job in jobs:
        await connection.execute(
            "INSERT INTO remote_calls (org_id, job_id, begun_by, endpoint, pace_key, destination)"
            " VALUES ($1, $2, 1, $3, '', '{}')",
            job.org,
            job.uuid,
            job.endpoint,
        )
        await connection.execute(
            "INSERT INTO generations (org_id, id, user_id, job_id, voice_id, language, text)"
            " VALUES ($1, $2, 'ann', $3, $2, 'en', 'a secret')",
            job.org,
            new_id(),
            job.uuid,
        )
    await expire(connection, jobs[0].uuid)
    await maintenance.prune(worker.line, rows_max=10)
    for table in ("remote_calls", "generations"):
        left = await connection.fetch(f"SELECT job_id FROM {table}")
        assert [row["job_id"] for row in left] == [jobs[1].uuid]


async def test_one_that_was_replaced_is_a_copy_of_its_own(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    await attach(worker.line, job, "first")
    ours, replaced = await attach(worker.line, job, "second")
    assert ours
    assert replaced is not None
    assert replaced.blob_key == "first"
    await artifacts.close(worker.line, [replaced])
    record = await record_of(worker.line, job)
    assert [copy.disposal for copy in record.copies] == [Disposal.REPLACED, None]
    assert not record.complete, "the second is there"


async def test_a_blob_attached_twice_does_not_replace_itself(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    """Else whoever sends it again, because an answer was lost, would have it deleted."""
    job = await put_job(connection, State.PROCESSING)
    await attach(worker.line, job, "blob")
    assert await attach(worker.line, job, "blob") == (True, None)
    assert await connection.fetchval("SELECT count(*) FROM artifact_records") == 0


async def test_a_stale_holder_replaces_nothing(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    await attach(worker.line, job, "blob")
    async with holding(connection):
        await connection.execute("UPDATE jobs SET lease = lease + 1 WHERE id = $1", job.uuid)
    assert await attach(worker.line, job, "late") == (False, None)
    assert [copy.disposal for copy in (await record_of(worker.line, job)).copies] == [None]


async def test_only_a_job_that_has_ended_has_its_artifact_taken_away(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    await attach(worker.line, job, "blob")
    assert await artifacts.delete(worker.line, ORG, job.uuid, "plan.svg") == []
    await worker.complete(job)
    assert await artifacts.delete(worker.line, "another", job.uuid, "plan.svg") == []
    assert await artifacts.delete(worker.line, ORG, job.uuid, "another") == []
    [blob] = await artifacts.delete(worker.line, ORG, job.uuid, "plan.svg")
    assert blob.blob_key == "blob"
    assert await reports.list_artifacts(worker.line, ORG, job.uuid) == []
    assert await artifacts.delete(worker.line, ORG, job.uuid, "plan.svg") == []
    await artifacts.close(worker.line, [blob])
    [copy] = (await record_of(worker.line, job)).copies
    assert copy.disposal is Disposal.OWNER
    assert (await row_of(connection, job))["result"] is not None, "the job stays as it is"


async def test_tasks_that_are_removed_leave_records_that_are_closed(
    batches: BatchRepository, connection: AsyncpgConnection, worker: Claimer
) -> None:
    made = await put_long_run(connection, [State.COMPLETED] * 3, keys=["a word of the payload"])
    await connection.execute(
        "INSERT INTO artifacts VALUES ($1, $2, 'file', 'blob', 'text/plain', 1, $3)",
        made.org,
        made.task(2),
        HASH,
    )
    there = await artifacts.record(worker.line, made.org, made.task(2), "file")
    assert there is not None
    assert there.queue_key == "", "its flow tells of its payload"
    await batches.delete(to_text(made.batch), org=made.org)
    await sql.fetch(
        worker.line,
        "removal/delete_tasks",
        org=made.org,
        run=made.run,
        ids=[made.task(1), made.task(2)],
        tasks_before=3,
        tasks_after=1,
    )
    record = await artifacts.record(worker.line, made.org, made.task(2), "file")
    assert record is not None
    assert [copy.disposal for copy in record.copies] == [Disposal.BATCH_REMOVED]
    assert (record.complete, record.queue_key) == (True, "")


async def test_what_the_owner_took_from_a_task_leaves_no_word_of_its_payload(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    made = await put_long_run(connection, [State.COMPLETED], keys=["a word of the payload"])
    await connection.execute(
        "INSERT INTO artifacts VALUES ($1, $2, 'file', 'blob', 'text/plain', 1, $3)",
        made.org,
        made.task(0),
        HASH,
    )
    assert await artifacts.delete(worker.line, made.org, made.task(0), "file")
    assert await connection.fetchval("SELECT flow FROM artifact_records") == ""


async def test_a_record_is_forgotten_90_days_after_the_deletion_and_not_before_it(
    connection: AsyncpgConnection, worker: Claimer
) -> None:
    job = await put_job(connection, State.PROCESSING)
    for name in ("open", "young", "old"):
        await attach(worker.line, job, name, name)
    await worker.complete(job)
    doomed = {}
    for name in ("open", "young", "old"):
        [doomed[name]] = await artifacts.delete(worker.line, ORG, job.uuid, name)
    await artifacts.close(worker.line, [doomed["young"], doomed["old"]])
    for name, days in (("young", 89), ("old", 91), ("open", 1_000)):
        await connection.execute(
            "UPDATE artifact_records SET deleting_at = now() - $2::interval,"
            " deleted_at = deleted_at - $2::interval WHERE name = $1",
            name,
            timedelta(days=days),
        )
    assert await artifacts.prune(worker.line, 10) == 1
    left = await connection.fetch("SELECT name FROM artifact_records ORDER BY name")
    assert [row["name"] for row in left] == ["open", "young"]
