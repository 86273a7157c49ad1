"""Inputs are recorded with their jobs; every copy is told of until it is gone, and after."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from coatcheck.core.queries import inputs, sql
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.ids import new_id
from coatcheck.domain.inputs import HeldCopy, Layer, Mechanism
from coatcheck.domain.limits import INPUT_RECORD_SECONDS
from coatcheck.domain.states import State, TransitionEvent
from tests.db.claimer import Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.input_rows import (
    CONTENT,
    LIFE_SECONDS,
    copy_in,
    end,
    let_expire,
    new_job,
    put_input,
    record_of,
    stored_input,
)
from tests.db.plans import explain_query
from tests.db.rows import ENDPOINT, ORG, row_of

PLACE = "host-1/coatcheck-abc"


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    line = Connection(dsn, name="test inputs", server_settings=PINNED_PLANS)
    yield line
    await line.close()


async def count(connection: AsyncpgConnection, table: str) -> int:
    rows: int = await connection.fetchval(f"SELECT count(*) FROM {table}")
    return rows


# Handing in


async def test_a_job_and_the_record_of_its_input_are_created_together(line: Connection) -> None:
    job = new_job()
    created = await inputs.submit(line, job, stored_input(age_seconds=60.0), LIFE_SECONDS)
    assert created == {job.uuid: State.QUEUED}
    record = await inputs.record(line, job.org, job.uuid)
    assert record is not None
    assert (record.owner, record.endpoint, record.size) == ("ann", ENDPOINT, len(CONTENT))
    assert record.sha256 == stored_input().sha256
    blob, database = record.copies
    assert (blob.layer, blob.place) == (Layer.BLOB, "inputs/d/j/u")
    assert blob.stored_at == record.received_at - timedelta(seconds=60)
    assert blob.expires_at == blob.stored_at + timedelta(seconds=LIFE_SECONDS)
    assert (database.layer, database.expires_at) == (Layer.DATABASE, None)
    assert not record.complete


async def test_of_a_job_whose_key_is_taken_nothing_is_recorded(
    line: Connection, connection: AsyncpgConnection
) -> None:
    first, second = new_job(idempotency_key="k"), new_job(idempotency_key="k")
    assert await inputs.submit(line, first, stored_input(), LIFE_SECONDS)
    assert await inputs.submit(line, second, stored_input("inputs/d/j/other"), LIFE_SECONDS) == {}
    assert await inputs.record(line, ORG, second.uuid) is None
    assert await count(connection, "jobs") == 1
    assert await count(connection, "job_inputs") == 1
    assert await count(connection, "input_copies") == 2


async def test_a_submission_that_is_sent_again_records_its_input_once(
    line: Connection, connection: AsyncpgConnection
) -> None:
    job = new_job()
    await inputs.submit(line, job, stored_input(), LIFE_SECONDS)
    assert await inputs.submit(line, job, stored_input(), LIFE_SECONDS) == {}
    assert await count(connection, "input_copies") == 2


async def test_the_time_by_which_a_job_must_start_is_counted_by_the_database(
    line: Connection, connection: AsyncpgConnection
) -> None:
    job = new_job(options='{"start_within_seconds": 90.0}')
    await inputs.submit(line, job, stored_input(), LIFE_SECONDS)
    row = await row_of(connection, job.uuid)
    assert row["start_deadline"] == row["created_at"] + timedelta(seconds=90)


async def test_a_blob_without_a_time_to_live_is_refused_by_the_table(
    connection: AsyncpgConnection,
) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="blobs_expire"):
        await connection.execute(
            "INSERT INTO input_copies (org_id, job_id, layer, place) VALUES ('a', $1, 'blob', 'k')",
            new_id(),
        )


async def test_what_was_deleted_without_saying_by_what_is_refused_by_the_table(
    line: Connection, connection: AsyncpgConnection
) -> None:
    await put_input(line)
    with pytest.raises(asyncpg.CheckViolationError, match="deleted_by_something"):
        await connection.execute("UPDATE input_copies SET deleted_at = now()")


# Disks


async def test_a_copy_on_a_disk_is_noted_under_the_lease_alone(
    line: Connection, worker: Claimer
) -> None:
    copy = await put_input(line)
    (job,) = await worker.claim(1)
    seconds = await inputs.note_disk_copy(line, job, PLACE)
    assert seconds is not None
    assert 0 < seconds <= LIFE_SECONDS
    again = await inputs.note_disk_copy(line, job, PLACE)
    assert again is not None, "sent again, it answers the same"
    job.lease += 1
    assert await inputs.note_disk_copy(line, job, "host-1/coatcheck-late") is None
    assert [each.place for each in await inputs.open_disk_copies(line, "host-1")] == [PLACE]
    on_disk = await copy_in(line, Layer.DISK, copy)
    assert on_disk.deleted_at is None
    assert on_disk.expires_at == (await copy_in(line, Layer.BLOB, copy)).expires_at


async def test_a_machine_is_told_of_its_own_disks_and_of_what_is_left_only(
    line: Connection, worker: Claimer
) -> None:
    await put_input(line)
    (job,) = await worker.claim(1)
    for place in (PLACE, "host-1/other", "host-11/x"):
        await inputs.note_disk_copy(line, job, place)
    gone = HeldCopy(job.org, job.uuid, PLACE)
    await inputs.disk_copies_deleted(line, [gone], Mechanism.WORKER)
    await inputs.disk_copies_deleted(line, [gone], Mechanism.SWEEP)
    assert await inputs.open_disk_copies(line, "host-1") == [
        HeldCopy(job.org, job.uuid, "host-1/other")
    ]
    record = await record_of(line, gone)
    said = {copy.place: copy.mechanism for copy in record.copies if copy.layer is Layer.DISK}
    assert said == {PLACE: Mechanism.WORKER, "host-1/other": None, "host-11/x": None}


# What is due


async def due(line: Connection) -> dict[UUID, Mechanism]:
    return {each.copy.job: each.mechanism for each in await inputs.due(line, 100)}


async def test_the_input_of_a_job_that_waits_or_runs_is_not_due(
    line: Connection, worker: Claimer
) -> None:
    await put_input(line, "inputs/d/1/u")
    await put_input(line, "inputs/d/2/u")
    await worker.claim(1)
    assert await due(line) == {}


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
async def test_the_input_of_a_job_that_has_ended_is_due(
    line: Connection, connection: AsyncpgConnection, state: str
) -> None:
    copy = await put_input(line)
    await end(connection, copy, state)
    assert await due(line) == {copy.job: Mechanism.UPKEEP}


async def test_the_input_of_a_job_whose_row_is_gone_is_due(
    line: Connection, connection: AsyncpgConnection
) -> None:
    copy = await put_input(line)
    await connection.execute("DELETE FROM jobs")
    assert await due(line) == {copy.job: Mechanism.UPKEEP}


async def test_an_input_whose_time_has_passed_is_due_while_its_job_runs(
    line: Connection, connection: AsyncpgConnection, worker: Claimer
) -> None:
    copy = await put_input(line)
    await worker.claim(1)
    await let_expire(connection, copy)
    assert await due(line) == {copy.job: Mechanism.TTL}


async def test_pages_of_what_is_due_follow_each_other(
    line: Connection, connection: AsyncpgConnection
) -> None:
    copies = [await put_input(line, f"inputs/d/{number}/u") for number in range(5)]
    for copy in copies:
        await end(connection, copy)
    seen, page = [], await inputs.due(line, 2)
    while page:
        seen += [each.copy for each in page]
        page = await inputs.due(line, 2, after=page[-1])
    assert seen == copies


async def test_what_is_due_is_found_among_the_few_that_are_left(
    line: Connection, connection: AsyncpgConnection
) -> None:
    for number in range(20):
        copy = await put_input(line, f"inputs/d/{number}/u")
        await end(connection, copy)
        await inputs.mark_deleted(line, [(copy, Mechanism.WORKER)])
    left = await put_input(line, "inputs/d/left/u")
    await end(connection, left)
    for name, value in PINNED_PLANS.items():
        await connection.execute(f"SET {name} = {value}")
    plan = await explain_query(
        connection,
        sql,
        "inputs/due",
        after_at="epoch",
        after_org="",
        after_job=UUID(int=0),
        rows_max=100,
    )
    assert plan.indexes("input_copies") == {"input_copies_left"}
    assert plan.rows_read("input_copies") == 1


# Deleted


async def test_with_the_blob_of_an_ended_job_its_pointer_is_closed(
    line: Connection, connection: AsyncpgConnection
) -> None:
    copy = await put_input(line)
    await end(connection, copy)
    assert await inputs.mark_deleted(line, [(copy, Mechanism.UPKEEP)]) == 1
    assert await inputs.mark_deleted(line, [(copy, Mechanism.TTL)]) == 0, "the first is believed"
    record = await record_of(line, copy)
    assert record.complete
    assert {each.layer: each.mechanism for each in record.copies} == {
        Layer.BLOB: Mechanism.UPKEEP,
        Layer.DATABASE: Mechanism.END_OF_JOB,
    }
    pointer = await connection.fetchrow("SELECT * FROM input_copies WHERE layer = 'database'")
    assert pointer["deleted_at"] == (await row_of(connection, copy.job))["finished_at"]
    assert await due(line) == {}


async def test_a_pointer_outlives_a_blob_whose_time_passed_and_goes_with_the_job(
    line: Connection, connection: AsyncpgConnection, worker: Claimer
) -> None:
    copy = await put_input(line)
    (job,) = await worker.claim(1)
    await inputs.mark_deleted(line, [(copy, Mechanism.TTL)])
    assert await inputs.close_pointers(line, 100) == 0
    assert not (await record_of(line, copy)).complete
    await worker.complete(job)
    assert (await record_of(line, copy)).complete, "told at once, though not written down yet"
    assert await inputs.close_pointers(line, 100) == 1
    assert await inputs.close_pointers(line, 100) == 0
    assert (await record_of(line, copy)).complete


async def test_a_job_that_is_tried_again_keeps_its_input(line: Connection, worker: Claimer) -> None:
    copy = await put_input(line)
    (job,) = await worker.claim(1)
    assert await worker.settle(job, TransitionEvent.RETRY) is State.RETRYING
    assert await due(line) == {}
    assert await inputs.open_blobs(line, [(ORG, copy.job)]) == [copy]


async def test_the_sweeper_is_told_of_inputs_that_somebody_answers_for(
    line: Connection, connection: AsyncpgConnection
) -> None:
    wanted, gone = [await put_input(line, f"inputs/d/{n}/u") for n in ("wanted", "gone")]
    await end(connection, gone)
    await inputs.mark_deleted(line, [(gone, Mechanism.WORKER)])
    asked = [
        (wanted.job, wanted.place),
        (wanted.job, "inputs/d/wanted/of-a-rival"),
        (gone.job, gone.place),
        (new_id(), "inputs/d/never/u"),
    ]
    assert await inputs.known_inputs(line, asked) == {wanted.place}


# The record


async def test_a_record_outlives_its_job_and_is_forgotten_in_the_end(
    line: Connection, connection: AsyncpgConnection
) -> None:
    copy = await put_input(line)
    await end(connection, copy)
    await inputs.mark_deleted(line, [(copy, Mechanism.WORKER)])
    await connection.execute("DELETE FROM jobs")
    assert (await record_of(line, copy)).complete
    kept = await connection.fetchval("SELECT forget_at - received_at FROM job_inputs")
    assert kept == timedelta(seconds=INPUT_RECORD_SECONDS)
    assert await inputs.prune(line, 100) == 0
    await connection.execute("UPDATE job_inputs SET forget_at = now()")
    assert await inputs.prune(line, 100) == 1
    assert await count(connection, "job_inputs") == await count(connection, "input_copies") == 0


async def test_a_record_is_not_forgotten_while_its_blob_is_left(
    line: Connection, connection: AsyncpgConnection
) -> None:
    copy = await put_input(line)
    await end(connection, copy)
    await connection.execute("UPDATE job_inputs SET forget_at = now()")
    assert await inputs.prune(line, 100) == 0
    assert await due(line) == {copy.job: Mechanism.UPKEEP}


async def test_another_organisation_is_told_of_no_record(line: Connection) -> None:
    copy = await put_input(line)
    assert await inputs.record(line, "other", copy.job) is None


async def test_nothing_is_said_to_be_deleted_after_it_was_read(
    connection: AsyncpgConnection, line: Connection
) -> None:
    copy = await put_input(line)
    async with connection.transaction():
        await connection.fetchval("SELECT now()")  # the transaction's time stands from here on
        await inputs.mark_deleted(line, [(copy, Mechanism.TTL)])
        rows = await sql.fetch(connection, "inputs/record", org=copy.org, job=copy.job)
    deleted = [row for row in rows if row["deleted_at"] is not None]
    assert deleted
    assert all(row["deleted_at"] <= row["read_at"] for row in deleted)
