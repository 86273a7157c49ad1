"""Batches in the database: created whole, counted exactly, completed once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from coatcheck.core.queries import usage
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.ids import new_id, run_queue_key, to_text
from coatcheck.domain.lanes import Lane
from coatcheck.domain.listing import PageQuery
from coatcheck.domain.states import TransitionEvent
from coatcheck.maintenance.usage import UsageRollup
from coatcheck.products.batches import ingest_repository as batch_ingest
from coatcheck.products.batches.maintenance import RunCompleter
from coatcheck.products.batches.model import (
    ABANDONED_BATCH_SECONDS,
    BatchAlreadyEnded,
    BatchNotOpen,
    BatchState,
    BatchStillRuns,
    BatchView,
    Created,
    NewBatch,
    NewPart,
    NewTask,
    NothingToRerun,
    RunFilter,
    TaskCounts,
    TaskStatus,
    task_id,
)
from coatcheck.products.batches.queries import sql
from coatcheck.products.batches.repository import (
    BatchRepository,
    CompletedRun,
    complete,
    notify_successes,
)
from tests.batch_repository import open_batches
from tests.db.claimer import Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.plans import explain_query
from tests.db.rows import ENDPOINT, ORG


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="batches", server_settings=PINNED_PLANS)
    yield opened
    await opened.close()


def new_batch(**options: Any) -> NewBatch:
    given: dict[str, Any] = {
        "org": ORG,
        "uuid": new_id(),
        "run": new_id(),
        "owner": "user:ann",
        "service": "demo",
        "service_endpoint": "/work",
        "endpoint": ENDPOINT,
        "usage_queue_key": "",
        "lane": Lane.STANDARD.value,
        "failures_max": 0,
        "is_open": False,
        "payload_prefix": b"",
        "payload_suffix": b"",
        "concurrency": None,
        "rate_per_second": None,
        "rate_key": None,
        "rate_key_per_second": None,
        "webhook_url": None,
        "webhook_events": (),
        "metadata": None,
        "keep_seconds": 60,
        "idempotency_key": None,
        "fingerprint": None,
        "request_id": None,
    }
    return NewBatch(**{**given, **options})


def tasks_of(count: int) -> list[NewTask]:
    return [NewTask(b'{"n": %d}' % number, f"task {number}") for number in range(count)]


async def create(batches: BatchRepository, new: NewBatch, tasks: Sequence[NewTask]) -> Created:
    return await batches.create(new, NewPart(new_id(), "inline"), tasks)


async def create_staged(batches: BatchRepository, new: NewBatch) -> UUID:
    """A batch whose list is still to be taken in. Its part."""
    part = NewPart(new_id(), "pieces", source_key="lists/x", source_pieces=1, source_bytes=10)
    assert (await batches.create(new, part)).created
    return part.uuid


async def look(batches: BatchRepository, batch: UUID) -> BatchView:
    return await batches.get(to_text(batch), org=ORG)


async def finish_all(worker: Claimer, count: int) -> None:
    claimed = await worker.claim(count)
    assert len(claimed) == count
    assert await worker.complete(*claimed) == count


async def keep_books(line: Connection) -> list[CompletedRun]:
    while (await usage.roll_up(line, 1_000)).deltas:
        pass
    return await complete(line, 100)


async def test_a_small_batch_is_there_with_all_its_tasks(
    batches: BatchRepository, connection: AsyncpgConnection
) -> None:
    new = new_batch(metadata=b'{"a": 1}')
    await create(batches, new, tasks_of(3))
    view = await look(batches, new.uuid)
    assert view.status is BatchState.RUNNING
    assert view.current.counts == TaskCounts(3, 0, 0, 0, 0)
    assert view.current.counts.pending == 3
    assert (view.current.lines, view.current.bad_lines) == (3, 0)
    assert (view.metadata, view.endpoint, view.owner) == (b'{"a": 1}', ENDPOINT, "user:ann")
    rows = await connection.fetch("SELECT * FROM jobs ORDER BY task_index")
    assert [row["id"].bytes for row in rows] == [task_id(new.run, index) for index in range(3)]
    assert [row["custom_id"] for row in rows] == ["task 0", "task 1", "task 2"]
    assert {row["flow"] for row in rows} == {run_queue_key(new.run)}
    assert [row["payload"] for row in rows] == [b'{"n": 0}', b'{"n": 1}', b'{"n": 2}']


async def test_a_task_id_is_the_beginning_of_the_hash_of_its_run_and_number() -> None:
    run = UUID(int=7)
    assert to_text(run) == "00000000000000000000000007"
    # printf '00000000000000000000000007:12' | sha256sum
    assert task_id(run, 12).hex() == "057e753e3c0745f35efd8efdb0b73cf5"


async def test_counts_are_exact_before_and_after_the_roll_up(
    batches: BatchRepository, line: Connection, worker: Claimer, connection: AsyncpgConnection
) -> None:
    new = new_batch()
    await create(batches, new, tasks_of(6))
    claimed = await worker.claim(4)
    await worker.complete(claimed[0], claimed[1])
    await worker.settle(claimed[2], TransitionEvent.FAIL)
    expected = TaskCounts(total=6, running=1, succeeded=2, failed=1, cancelled=0)
    assert (await look(batches, new.uuid)).current.counts == expected
    await keep_books(line)
    assert (await look(batches, new.uuid)).current.counts == expected
    recount = await connection.fetchrow(
        """
        SELECT count(*) FILTER (WHERE state = 'completed') AS succeeded,
               count(*) FILTER (WHERE state = 'failed') AS failed
        FROM jobs WHERE run_id = $1
        """,
        new.run,
    )
    assert recount is not None
    assert tuple(recount) == (2, 1)


async def test_a_run_completes_once_and_keeps_what_its_tasks_came_with(
    batches: BatchRepository, line: Connection, worker: Claimer, connection: AsyncpgConnection
) -> None:
    new = new_batch()
    await create(batches, new, tasks_of(2))
    assert await keep_books(line) == []
    await finish_all(worker, 2)
    assert [run.status for run in await keep_books(line)] == ["completed"]
    assert await keep_books(line) == []
    view = await look(batches, new.uuid)
    assert view.status is BatchState.COMPLETED
    assert view.completed_at is not None
    assert view.expires_at is not None
    assert (view.expires_at - view.completed_at).total_seconds() == 60
    rows = await connection.fetch("SELECT payload, expires_at FROM jobs WHERE run_id = $1", new.run)
    assert {row["payload"] for row in rows} == {b'{"n": 0}', b'{"n": 1}'}
    forever = await connection.fetchval("SELECT 'infinity'::timestamptz")
    assert {row["expires_at"] for row in rows} == {forever}


async def test_two_keepers_complete_a_run_once(
    batches: BatchRepository, line: Connection, worker: Claimer, dsn: str
) -> None:
    new = new_batch()
    await create(batches, new, tasks_of(1))
    await finish_all(worker, 1)
    await usage.roll_up(line, 100)
    other = Connection(dsn, name="other keeper")
    try:
        both = await asyncio.gather(complete(line, 10), complete(other, 10))
    finally:
        await other.close()
    assert sum(map(len, both)) == 1


async def test_a_key_names_one_batch_under_a_race(
    batches: BatchRepository, dsn: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as servers:
        rivals = [await servers.enter_async_context(open_batches(dsn, tmp_path)) for _ in range(4)]
        made = await asyncio.gather(
            *(create(rival, new_batch(idempotency_key="once"), tasks_of(2)) for rival in rivals)
        )
    assert len({inserted.uuid for inserted in made}) == 1
    assert sum(inserted.created for inserted in made) == 1
    (view,) = await batches.list(ORG, owner=None)
    assert view.current.counts.total == 2


async def test_a_batch_sent_twice_by_one_caller_is_one(batches: BatchRepository) -> None:
    new = new_batch()
    first = await create(batches, new, tasks_of(2))
    again = await create(batches, new, tasks_of(2))
    assert first.created
    assert again.created
    assert (await look(batches, new.uuid)).current.counts.total == 2


async def test_a_staged_list_is_ingesting_until_it_is_latched(
    batches: BatchRepository, line: Connection, connection: AsyncpgConnection
) -> None:
    new = new_batch()
    part = await create_staged(batches, new)
    view = await look(batches, new.uuid)
    assert (view.status, view.status.terminal) == (BatchState.INGESTING, False)
    job = await connection.fetchval("SELECT ingest_job FROM batch_parts WHERE id = $1", part)
    assert await connection.fetchval("SELECT state FROM jobs WHERE id = $1", job) == "queued"
    assert not await batch_ingest.latch(line, ORG, new.run)
    assert await keep_books(line) == []


async def test_a_failed_part_shows_and_stops_the_run_from_completing(
    batches: BatchRepository, line: Connection, connection: AsyncpgConnection
) -> None:
    new = new_batch()
    await create_staged(batches, new)
    await connection.execute(
        "UPDATE batch_parts SET state = 'failed', error_code = 'list_empty', error_message = 'none'"
    )
    view = await look(batches, new.uuid)
    assert view.status is BatchState.FAILED_INGEST
    assert view.current.error_code == "list_empty"
    assert not await batch_ingest.latch(line, ORG, new.run)


async def test_an_open_batch_takes_more_until_it_is_closed(
    batches: BatchRepository, line: Connection, worker: Claimer
) -> None:
    new = new_batch(is_open=True)
    await create(batches, new, tasks_of(2))
    assert (await look(batches, new.uuid)).status is BatchState.OPEN
    await finish_all(worker, 2)
    assert await keep_books(line) == []
    part = NewPart(new_id(), "inline")
    for _ in range(2):  # a repeat, as after a lost answer
        added = await batches.add(ORG, new.uuid, part, tasks_of(3))
        assert added.created
    assert (await look(batches, new.uuid)).current.counts.total == 5
    assert await batches.close(to_text(new.uuid), org=ORG)
    with pytest.raises(BatchNotOpen):
        await batches.add(ORG, new.uuid, NewPart(new_id(), "inline"), tasks_of(1))
    assert (await look(batches, new.uuid)).status is BatchState.RUNNING
    await finish_all(worker, 3)
    assert len(await keep_books(line)) == 1
    assert (await look(batches, new.uuid)).status is BatchState.COMPLETED


async def test_an_open_batch_without_tasks_completes_when_it_is_closed(
    batches: BatchRepository, line: Connection
) -> None:
    new = new_batch(is_open=True)
    await batches.create(new, None)
    await batches.close(to_text(new.uuid), org=ORG)
    assert len(await keep_books(line)) == 1
    assert (await look(batches, new.uuid)).current.counts.total == 0


async def test_added_tasks_are_numbered_on(
    batches: BatchRepository, connection: AsyncpgConnection
) -> None:
    new = new_batch(is_open=True)
    await create(batches, new, tasks_of(2))
    await batches.add(ORG, new.uuid, NewPart(new_id(), "inline"), tasks_of(2))
    rows = await connection.fetch("SELECT id, task_index FROM jobs ORDER BY task_index")
    assert [(row["id"].bytes, row["task_index"]) for row in rows] == [
        (task_id(new.run, index), index) for index in range(4)
    ]


async def test_nothing_of_a_cancelled_run_is_claimed(
    batches: BatchRepository, worker: Claimer
) -> None:
    new = new_batch()
    await create(batches, new, tasks_of(4))
    assert await batches.cancel(to_text(new.uuid), org=ORG)
    assert await worker.claim(10) == []
    assert await worker.claim_limited(10) == []
    assert (await look(batches, new.uuid)).current.cancel_requested_at is not None
    assert await batches.cancel(to_text(new.uuid), org=ORG)  # again


async def test_a_batch_that_has_ended_cannot_be_cancelled(
    batches: BatchRepository, line: Connection, worker: Claimer
) -> None:
    new = new_batch()
    await create(batches, new, tasks_of(1))
    await finish_all(worker, 1)
    await keep_books(line)
    with pytest.raises(BatchAlreadyEnded):
        await batches.cancel(to_text(new.uuid), org=ORG)


async def rerun(batches: BatchRepository, batch: UUID, selection: RunFilter) -> Created:
    _, created = await batches.rerun(to_text(batch), selection, org=ORG)
    return created


async def test_a_rerun_is_a_new_run_linked_to_the_old_one(
    batches: BatchRepository, line: Connection, worker: Claimer
) -> None:
    new = new_batch()
    await create(batches, new, tasks_of(2))
    with pytest.raises(BatchStillRuns):
        await rerun(batches, new.uuid, RunFilter())
    claimed = await worker.claim(2)
    await worker.complete(claimed[0])
    await worker.settle(claimed[1], TransitionEvent.FAIL, code="http_404")
    await keep_books(line)
    with pytest.raises(NothingToRerun):
        await rerun(batches, new.uuid, RunFilter([TaskStatus.FAILED], ["http_500"]))
    made = await rerun(batches, new.uuid, RunFilter([TaskStatus.FAILED], ["http_404"]))
    view = await look(batches, new.uuid)
    assert [run.number for run in view.runs] == [1, 2]
    assert (view.current.parent, view.current.uuid) == (new.run, made.uuid)
    assert view.status is BatchState.INGESTING
    assert view.completed_at is None
    assert view.expires_at is None


async def test_a_rerun_of_a_failed_ingest_takes_the_list_along(
    batches: BatchRepository, connection: AsyncpgConnection
) -> None:
    new = new_batch()
    part = await create_staged(batches, new)
    await connection.execute(
        "UPDATE batch_parts SET state = 'failed', error_code = 'x', error_message = 'y'"
    )
    made = await rerun(batches, new.uuid, RunFilter())
    row = await connection.fetchrow("SELECT run_id, state FROM batch_parts WHERE id = $1", part)
    assert row is not None
    assert (row["run_id"], row["state"]) == (made.uuid, "pending")
    assert (await look(batches, new.uuid)).status is BatchState.INGESTING


async def test_a_deleted_batch_is_gone_for_readers_and_its_key_is_free(
    batches: BatchRepository, worker: Claimer
) -> None:
    new = new_batch(idempotency_key="again")
    await create(batches, new, tasks_of(2))
    await batches.delete(to_text(new.uuid), org=ORG)
    with pytest.raises(JobNotFound):
        await look(batches, new.uuid)
    with pytest.raises(JobNotFound):
        await batches.delete(to_text(new.uuid), org=ORG)
    assert await worker.claim(5) == []
    other = new_batch(idempotency_key="again")
    assert (await create(batches, other, tasks_of(1))).uuid == other.uuid


async def test_what_tasks_use_is_summed_up_under_their_batch_and_not_by_run(
    batches: BatchRepository, line: Connection, worker: Claimer, connection: AsyncpgConnection
) -> None:
    for _ in range(2):
        await create(batches, new_batch(usage_queue_key="pages.v1.get"), tasks_of(2))
    await finish_all(worker, 4)
    await keep_books(line)
    rows = await connection.fetch("SELECT flow, completed FROM usage")
    assert [tuple(row) for row in rows] == [("pages.v1.get", 4)]


async def test_batches_are_listed_newest_first_by_owner(batches: BatchRepository) -> None:
    mine = [new_batch(), new_batch()]
    for new in (*mine, new_batch(owner="user:bob")):
        await create(batches, new, tasks_of(1))
    listed = await batches.list(ORG, owner="user:ann")
    assert {view.uuid for view in listed} == {new.uuid for new in mine}
    assert [view.uuid for view in listed] == sorted((view.uuid for view in listed), reverse=True)
    after_first = PageQuery(after=listed[0].uuid)
    (older,) = await batches.list(ORG, after_first, owner="user:ann")
    assert older.uuid == listed[1].uuid
    assert len(await batches.list(ORG, owner=None)) == 3
    assert await batches.list("other", owner=None) == []


async def test_a_list_of_one_owner_s_reads_no_batches_of_others(
    batches: BatchRepository, connection: AsyncpgConnection
) -> None:
    await create(batches, new_batch(owner="user:ann"), tasks_of(1))
    for _ in range(20):
        await create(batches, new_batch(owner="user:bob"), tasks_of(1))
    for name, value in PINNED_PLANS.items():
        await connection.execute(f"SET {name} = '{value}'")
    bounds = PageQuery(limit=10).arguments()
    plan = await explain_query(
        connection, sql, "batches/list", org=ORG, owner="user:ann", **bounds, limit=10
    )
    assert plan.indexes("batches") >= {"batches_owned"}
    assert plan.rows_read("batches") == 1
    plan = await explain_query(
        connection, sql, "batches/list", org=ORG, owner=None, **bounds, limit=10
    )
    assert plan.rows_read("batches") == 10


async def test_completion_is_told_by_webhook_in_its_own_transaction(
    batches: BatchRepository, line: Connection, worker: Claimer, connection: AsyncpgConnection
) -> None:
    new = new_batch(
        webhook_url="https://example.com/hook",
        webhook_events=("completed", "task.failed", "tasks.succeeded"),
    )
    await create(batches, new, tasks_of(3))
    claimed = await worker.claim(3)
    await worker.complete(claimed[0], claimed[1])
    await worker.settle(claimed[2], TransitionEvent.FAIL, code="broke")
    await keep_books(line)
    rows = await connection.fetch(
        "SELECT subject_kind, subject_id, event, facts FROM webhook_deliveries ORDER BY id"
    )
    assert [row["event"] for row in rows] == ["task.failed", "tasks.succeeded", "batch.completed"]
    assert rows[0]["subject_id"] == claimed[2].uuid
    assert rows[2]["subject_id"] == new.uuid
    assert '"failed": 1' in rows[2]["facts"]
    assert '"succeeded": 2' in rows[2]["facts"]


async def test_successes_are_told_together_while_a_run_goes_on(
    batches: BatchRepository, line: Connection, worker: Claimer, connection: AsyncpgConnection
) -> None:
    new = new_batch(webhook_url="https://example.com/hook", webhook_events=("tasks.succeeded",))
    await create(batches, new, tasks_of(5))
    await finish_all(worker, 2)
    await keep_books(line)
    await notify_successes(line, 3600.0)
    await finish_all(worker, 2)
    await keep_books(line)
    await notify_successes(line, 3600.0)  # not yet again
    facts = await connection.fetch("SELECT facts FROM webhook_deliveries")
    assert [row["facts"] for row in facts] == ['{"succeeded": 2}']


async def test_successes_that_came_too_early_are_told_although_nothing_more_happens(
    batches: BatchRepository, line: Connection, worker: Claimer, connection: AsyncpgConnection
) -> None:
    new = new_batch(webhook_url="https://example.com/hook", webhook_events=("tasks.succeeded",))
    await create(batches, new, tasks_of(5))
    counting = UsageRollup(line, Silence())  # type: ignore[arg-type]
    completer = RunCompleter(line, Silence())  # type: ignore[arg-type]
    await finish_all(worker, 1)
    await counting.tick()
    await completer.tick()
    await finish_all(worker, 3)
    await counting.tick()
    await completer.tick()  # too early
    await connection.execute("UPDATE runs SET succeeded_told_at = now() - interval '1 hour'")
    await completer.tick()
    facts = await connection.fetch("SELECT facts FROM webhook_deliveries ORDER BY id")
    assert [row["facts"] for row in facts] == ['{"succeeded": 1}', '{"succeeded": 3}']


class Silence:
    def notify(self, channel: str, words: Any) -> None:
        """Nobody listens."""


async def test_whoever_waits_hears_which_batches_changed(
    batches: BatchRepository, line: Connection, worker: Claimer, dsn: str
) -> None:
    said: list[set[str]] = []

    class Ear:
        def notify(self, channel: str, words: Any) -> None:
            said.append(set(words))

    new = new_batch()
    await create(batches, new, tasks_of(1))
    await finish_all(worker, 1)
    await UsageRollup(line, Ear()).tick()  # type: ignore[arg-type]
    assert said == [{new.uuid.hex}], "a task of it was counted"
    await RunCompleter(line, Ear()).tick()  # type: ignore[arg-type]
    assert said == [{new.uuid.hex}] * 2, "and it was completed"


async def test_reading_a_batch_costs_the_same_however_many_tasks_it_has(
    batches: BatchRepository, line: Connection, worker: Claimer, connection: AsyncpgConnection
) -> None:
    await create(batches, new_batch(), tasks_of(1_000))
    new = new_batch()
    await create(batches, new, tasks_of(2_000))
    claimed = await worker.claim(600)
    await worker.complete(*claimed[100:])
    await connection.execute("ANALYZE")
    plan = await line.run(lambda it: explain_query(it, sql, "batches/get", org=ORG, batch=new.uuid))
    assert plan.indexes("claims") == {"claims_pkey"}
    assert plan.indexes("jobs") == {"jobs_pkey"}
    assert sum(scan["Actual Loops"] for scan in plan.scans("jobs")) == len(claimed)
    assert plan.sequential_scans("batch_parts") == 0
    assert plan.sequential_scans("usage_deltas") == 0


async def test_a_task_fails_by_the_code_of_what_it_failed_with(
    batches: BatchRepository, worker: Claimer, connection: AsyncpgConnection
) -> None:
    new = new_batch()
    await create(batches, new, tasks_of(1))
    (claimed,) = await worker.claim(1)
    await worker.settle(claimed, TransitionEvent.RETRY, code="http_503")
    row = await connection.fetchrow("SELECT state::text, error_code, error_message FROM jobs")
    assert row is not None
    assert tuple(row) == ("failed", "http_503", "failed once; last: http_503: it broke")
    assert await connection.fetchval("SELECT count(*) FROM job_events") == 0


async def test_a_batch_whose_list_failed_is_removed_when_nobody_cares(
    batches: BatchRepository, line: Connection, connection: AsyncpgConnection
) -> None:
    new = new_batch(idempotency_key="k")
    await create_staged(batches, new)
    await connection.execute(
        "UPDATE batch_parts SET state = 'failed', error_code = 'x', error_message = 'y'"
    )
    expiring = {"batches_max": 10, "abandoned_seconds": float(ABANDONED_BATCH_SECONDS)}
    assert await sql.fetch(line, "removal/expire", **expiring) == []
    await connection.execute("UPDATE batch_parts SET updated_at = now() - interval '15 days'")
    assert len(await sql.fetch(line, "removal/expire", **expiring)) == 1
    with pytest.raises(JobNotFound):
        await look(batches, new.uuid)


async def test_an_open_batch_is_closed_when_nothing_was_added_for_long(
    batches: BatchRepository, line: Connection, connection: AsyncpgConnection, worker: Claimer
) -> None:
    fresh, idle = new_batch(is_open=True), new_batch(is_open=True)
    for new in (fresh, idle):
        await create(batches, new, tasks_of(1))
    await connection.execute(
        "UPDATE runs SET created_at = now() - interval '15 days' WHERE id = $1", idle.run
    )
    closing = {"runs_max": 10, "seconds": float(ABANDONED_BATCH_SECONDS)}
    # Something was added since.
    assert await sql.fetch(line, "removal/close_idle", **closing) == []
    await connection.execute(
        "UPDATE batch_parts SET created_at = now() - interval '15 days' WHERE run_id = $1", idle.run
    )
    assert len(await sql.fetch(line, "removal/close_idle", **closing)) == 1
    assert (await look(batches, fresh.uuid)).status is BatchState.OPEN
    await finish_all(worker, 2)
    await batch_ingest.latch_missed(line, 10)
    await keep_books(line)
    assert (await look(batches, idle.uuid)).status is BatchState.COMPLETED


async def test_a_run_that_was_given_up_for_the_next_one_tells_nobody(
    batches: BatchRepository, line: Connection, connection: AsyncpgConnection
) -> None:
    new = new_batch(webhook_url="https://example.com/hook", webhook_events=("completed",))
    await create_staged(batches, new)
    await connection.execute(
        "UPDATE batch_parts SET state = 'failed', error_code = 'x', error_message = 'y'"
    )
    assert (await rerun(batches, new.uuid, RunFilter())).created
    await batch_ingest.latch(line, ORG, new.run)
    (ended,) = await keep_books(line)
    assert (ended.run, ended.status) == (new.run, "cancelled")
    assert await connection.fetchval("SELECT count(*) FROM webhook_deliveries") == 0
    assert (await look(batches, new.uuid)).completed_at is None


async def test_a_batch_that_is_being_cancelled_is_not_run_again_before_it_has_ended(
    batches: BatchRepository, connection: AsyncpgConnection
) -> None:
    new = new_batch()
    await create_staged(batches, new)
    await connection.execute(
        "UPDATE batch_parts SET state = 'failed', error_code = 'x', error_message = 'y'"
    )
    await batches.cancel(to_text(new.uuid), org=ORG)
    with pytest.raises(BatchStillRuns):
        await rerun(batches, new.uuid, RunFilter())
