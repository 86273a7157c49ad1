"""What is done to one batch at the same time: nothing is lost, and nobody waits in a circle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.states import TransitionEvent
from coatcheck.products.batches import ingest_repository as batch_ingest
from coatcheck.products.batches.model import (
    BatchState,
    BatchStillRuns,
    NewPart,
    RunFilter,
    TaskStatus,
)
from coatcheck.products.batches.queries import sql
from coatcheck.products.batches.repository import BatchRepository
from tests.db.blocking import until_blocked
from tests.db.claimer import Claimer
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import ORG
from tests.db.test_batches import (
    create,
    create_staged,
    finish_all,
    keep_books,
    look,
    new_batch,
    rerun,
    tasks_of,
)


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="batches", server_settings=PINNED_PLANS)
    yield opened
    await opened.close()


async def add_list(batches: BatchRepository, batch: UUID) -> UUID:
    part = NewPart(new_id(), "pieces", source_key="lists/y", source_pieces=1, source_bytes=10)
    assert (await batches.add(ORG, batch, part, None)).created
    return part.uuid


async def test_a_batch_is_not_run_again_while_a_list_of_it_is_being_taken_in(
    batches: BatchRepository, line: Connection
) -> None:
    new = new_batch(is_open=True)
    failed = await create_staged(batches, new)
    waiting = await add_list(batches, new.uuid)
    await batches.close(to_text(new.uuid), org=ORG)
    await batch_ingest.fail_part(line, ORG, failed, "list_missing", "it is gone")
    view = await look(batches, new.uuid)
    assert (view.status, view.current.error_code) == (BatchState.INGESTING, "list_missing")
    with pytest.raises(BatchStillRuns):
        await rerun(batches, new.uuid, RunFilter())
    await batch_ingest.fail_part(line, ORG, waiting, "list_missing", "it is gone, too")
    assert (await look(batches, new.uuid)).status is BatchState.FAILED_INGEST
    await rerun(batches, new.uuid, RunFilter())
    assert await batches.dead_letters.page(ORG, owner=None) == [], "both lists are the new run's"


async def test_tasks_are_chosen_by_their_end_once_all_have_one(
    batches: BatchRepository, line: Connection, worker: Claimer
) -> None:
    """A list failed, so the run cannot complete; its tasks go on. Run again, it is cancelled: those
    that wait would be in no run."""
    new = new_batch(is_open=True)
    failed = await create_staged(batches, new)
    part = NewPart(new_id(), "inline")
    assert (await batches.add(ORG, new.uuid, part, tasks_of(2))).created
    await batches.close(to_text(new.uuid), org=ORG)
    await batch_ingest.fail_part(line, ORG, failed, "list_missing", "it is gone")
    (first,) = await worker.claim(1)
    await worker.settle(first, TransitionEvent.FAIL)
    with pytest.raises(BatchStillRuns):
        await rerun(batches, new.uuid, RunFilter([TaskStatus.FAILED]))
    await finish_all(worker, 1)
    assert (await rerun(batches, new.uuid, RunFilter([TaskStatus.FAILED]))).created


async def test_a_rerun_that_meets_a_redrive_takes_no_list_away(
    batches: BatchRepository, line: Connection, connection: AsyncpgConnection
) -> None:
    new = new_batch()
    part = await create_staged(batches, new)
    await batch_ingest.fail_part(line, ORG, part, "list_missing", "it is gone")
    async with connection.transaction():
        await connection.execute("SELECT FROM runs WHERE id = $1 FOR UPDATE", new.run)
        rerunning = asyncio.create_task(rerun(batches, new.uuid, RunFilter()))
        await until_blocked(connection, "coatcheck pool")
        await connection.execute("UPDATE batch_parts SET state = 'pending' WHERE id = $1", part)
    with pytest.raises(BatchStillRuns):
        await rerunning
    run = (await look(batches, new.uuid)).current
    assert run.uuid == new.run
    assert run.cancel_requested_at is None


async def test_what_waits_for_a_rerun_finds_the_batch_with_its_new_run(
    batches: BatchRepository, line: Connection, worker: Claimer, connection: AsyncpgConnection
) -> None:
    """A caller who heard nothing asks again, while the first rerun is still under way. The batch is
    there, and runs; to whoever joined it with its run before waiting, it would seem to be gone."""
    new = new_batch()
    await create(batches, new, tasks_of(1))
    await finish_all(worker, 1)
    await keep_books(line)
    async with connection.transaction():
        await connection.execute("SELECT FROM batches WHERE id = $1 FOR UPDATE", new.uuid)
        again = asyncio.create_task(rerun(batches, new.uuid, RunFilter()))
        await until_blocked(connection, "coatcheck pool")
        await sql.fetch(
            connection,
            "batches/rerun",
            org=ORG,
            batch=new.uuid,
            run=new_id(),
            number=2,
            parent=new.run,
            selection='{"statuses": []}',
            all_runs=False,
        )
    with pytest.raises(BatchStillRuns):
        await again


async def test_a_run_completes_later_if_its_batch_is_being_changed(
    batches: BatchRepository, line: Connection, worker: Claimer, connection: AsyncpgConnection
) -> None:
    """Whoever changes a batch locks it, then its run. Waiting for the batch with the run in hand,
    the completion would make them wait for each other."""
    new = new_batch()
    await create(batches, new, tasks_of(1))
    await finish_all(worker, 1)
    async with connection.transaction():
        await connection.execute("SELECT FROM batches WHERE id = $1 FOR UPDATE", new.uuid)
        assert await keep_books(line) == []
    assert [run.run for run in await keep_books(line)] == [new.run]


async def test_ends_are_counted_later_if_their_run_is_being_changed(
    batches: BatchRepository, line: Connection, worker: Claimer, connection: AsyncpgConnection
) -> None:
    """A chunk of a list may take long to write, or its writer may stand still with the run locked:
    no other run, and no other upkeep, waits for it."""
    locked, other = new_batch(), new_batch()
    for new in (locked, other):
        await create(batches, new, tasks_of(1))
    await finish_all(worker, 2)
    async with connection.transaction():
        await connection.execute("SELECT FROM runs WHERE id = $1 FOR UPDATE", locked.run)
        assert [run.run for run in await keep_books(line)] == [other.run]
        assert (await look(batches, locked.uuid)).current.counts.succeeded == 1
    assert [run.run for run in await keep_books(line)] == [locked.run]
