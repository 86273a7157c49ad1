"""Kills a process at every crash point of a batch's own statements; it converges all the same.

The points of taking lists in, of exports and of removal have sweeps of their own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.domain.ids import new_id, to_text
from coatcheck.encoding import encode
from coatcheck.products.batches.executor import BatchExecutor
from coatcheck.products.batches.model import BatchState, BatchView, NewPart, NewTask, Selection
from coatcheck.products.batches.repository import BatchRepository
from tests.e2e.faults.laboratory import Laboratory
from tests.e2e.faults.process import new_batch
from tests.e2e.faults.services import lab
from tests.e2e.faults.victims import VICTIM
from tests.waiting import eventually_async

TASKS = 20
ORG = "default"
BATCH_POINTS = {
    "batch.inserted_not_committed",
    "batch.cancel_not_committed",
    "batch.completed_not_committed",
    "batch.completed_not_notified",
    "rerun.inserted_not_committed",
}


@pytest.fixture
async def laboratory(dsn: str, tmp_path: Path) -> AsyncIterator[Laboratory]:
    async with Laboratory(dsn, tmp_path) as opened:
        yield opened


async def create(laboratory: Laboratory, key: str | None = None) -> str:
    created = await laboratory.engine.extension(BatchRepository).create_small(
        new_batch(key),
        NewPart(new_id(), "inline"),
        [NewTask(encode(laboratory.payload()))] * TASKS,
    )
    return to_text(created.uuid)


async def look(laboratory: Laboratory, batch: str) -> BatchView:
    return await laboratory.engine.extension(BatchRepository).get(batch, org=ORG)


async def ends(laboratory: Laboratory, batch: str) -> BatchView:
    async def ended() -> BatchView | None:
        view = await look(laboratory, batch)
        return view if view.status.terminal else None

    view: BatchView = await eventually_async(ended, "the batch ends")
    return view


async def is_consistent(laboratory: Laboratory, view: BatchView) -> None:
    """Counters equal recounts, no task is there twice or missing, one event for each run."""
    for run in view.runs:
        rows = await laboratory.sql.fetch(
            "SELECT task_index, state::text FROM jobs WHERE run_id = $1", run.uuid
        )
        assert sorted(row["task_index"] for row in rows) == list(range(run.counts.total))
        states = [row["state"] for row in rows]
        assert states.count("completed") == run.counts.succeeded
        assert states.count("failed") == run.counts.failed
        assert states.count("cancelled") == run.counts.cancelled
        assert run.counts.pending == run.counts.running == 0
        told = await laboratory.sql.fetchval(
            "SELECT count(*) FROM webhook_deliveries WHERE run_id = $1 AND event LIKE 'batch.%'",
            run.uuid,
        )
        assert told == 1


@pytest.mark.crash
async def test_a_batch_that_was_not_committed_is_not_there_and_can_be_sent_again(
    laboratory: Laboratory,
) -> None:
    process = laboratory.start(
        "create_batch",
        json.dumps(laboratory.payload()),
        str(TASKS),
        "key",
        crash_at="batch.inserted_not_committed:1",
    )
    await laboratory.strike(process)
    if VICTIM.is_exact:
        assert await laboratory.sql.fetchval("SELECT count(*) FROM jobs") == 0
        assert await laboratory.sql.fetchval("SELECT count(*) FROM batches") == 0
    batch = await create(laboratory, "key")
    assert await create(laboratory, "key") == batch
    laboratory.start_upkeep()
    await laboratory.start_worker(lab)
    view = await ends(laboratory, batch)
    assert view.current.counts.succeeded == TASKS
    ran = len(laboratory.executions())
    assert ran == TASKS if VICTIM.is_exact else ran >= TASKS
    await is_consistent(laboratory, view)


@pytest.mark.crash
@pytest.mark.parametrize("point", ["batch.completed_not_committed", "batch.completed_not_notified"])
async def test_a_run_completes_once_though_its_keeper_dies(
    laboratory: Laboratory, point: str
) -> None:
    batch = await create(laboratory)
    await laboratory.start_worker(lab)
    keeper = laboratory.start("upkeep", crash_at=f"{point}:1")
    await laboratory.strike(keeper)
    view = await look(laboratory, batch)
    committed = point == "batch.completed_not_notified"
    if VICTIM.is_exact:
        assert view.status is (BatchState.COMPLETED if committed else BatchState.RUNNING)
    laboratory.start_upkeep()
    view = await ends(laboratory, batch)
    assert view.status is BatchState.COMPLETED
    await is_consistent(laboratory, view)


@pytest.mark.crash
async def test_a_cancellation_that_was_not_committed_can_be_asked_for_again(
    laboratory: Laboratory,
) -> None:
    batch = await create(laboratory)
    process = laboratory.start("cancel_batch", batch, crash_at="batch.cancel_not_committed:1")
    await laboratory.strike(process)
    if VICTIM.is_exact:
        assert (await look(laboratory, batch)).current.cancel_requested_at is None
    await laboratory.engine.extension(BatchRepository).cancel(batch, org=ORG)
    laboratory.start_upkeep()
    view = await ends(laboratory, batch)
    assert view.status is BatchState.CANCELLED
    assert view.current.counts.cancelled == TASKS
    await is_consistent(laboratory, view)


@pytest.mark.crash
async def test_a_rerun_that_was_not_committed_can_be_asked_for_again(
    laboratory: Laboratory,
) -> None:
    batch = await create(laboratory)
    laboratory.start_upkeep()
    await laboratory.start_worker(lab)
    await ends(laboratory, batch)
    process = laboratory.start(
        "rerun_batch", batch, "again", crash_at="rerun.inserted_not_committed:1"
    )
    await laboratory.strike(process)
    if VICTIM.is_exact:
        assert len((await look(laboratory, batch)).runs) == 1
    for _ in range(2):
        await laboratory.engine.extension(BatchRepository).rerun(
            batch, Selection(), org=ORG, idempotency_key="again"
        )
    async with BatchExecutor(laboratory.settings()) as executor:
        ingester = executor.worker()
        await laboratory.run_worker(ingester)
        view = await ends(laboratory, batch)
        await laboratory.drain(ingester)
    assert len(view.runs) == 2
    assert view.current.counts.succeeded == TASKS
    await is_consistent(laboratory, view)
