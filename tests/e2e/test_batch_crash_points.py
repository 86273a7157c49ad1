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
from coatcheck.products.batches.model import BatchState, BatchView, NewPart, NewTask, RunFilter
from coatcheck.products.batches.repository import BatchRepository
from tests.crash_points import VICTIM
from tests.deployment import Deployment
from tests.e2e.faults.process import new_batch
from tests.e2e.faults.roles import executions, payload, start_role
from tests.e2e.faults.services import lab
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
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path, servers=0) as opened:
        yield opened


async def create(deployment: Deployment, key: str | None = None) -> str:
    created = await deployment.engine.extension(BatchRepository).create(
        new_batch(key),
        NewPart(new_id(), "inline"),
        [NewTask(encode(payload(deployment)))] * TASKS,
    )
    return to_text(created.uuid)


async def look(deployment: Deployment, batch: str) -> BatchView:
    return await deployment.engine.extension(BatchRepository).get(batch, org=ORG)


async def ends(deployment: Deployment, batch: str) -> BatchView:
    async def ended() -> BatchView | None:
        view = await look(deployment, batch)
        return view if view.status.terminal else None

    view: BatchView = await eventually_async(ended, "the batch ends")
    return view


async def is_consistent(deployment: Deployment, view: BatchView) -> None:
    """Counters equal recounts, no task is there twice or missing, one event for each run."""
    for run in view.runs:
        rows = await deployment.sql.fetch(
            "SELECT task_index, state::text FROM jobs WHERE run_id = $1", run.uuid
        )
        assert sorted(row["task_index"] for row in rows) == list(range(run.counts.total))
        states = [row["state"] for row in rows]
        assert states.count("completed") == run.counts.succeeded
        assert states.count("failed") == run.counts.failed
        assert states.count("cancelled") == run.counts.cancelled
        assert run.counts.pending == run.counts.running == 0
        told = await deployment.sql.fetchval(
            "SELECT count(*) FROM webhook_deliveries WHERE run_id = $1 AND event LIKE 'batch.%'",
            run.uuid,
        )
        assert told == 1


@pytest.mark.crash
async def test_a_batch_that_was_not_committed_is_not_there_and_can_be_sent_again(
    deployment: Deployment,
) -> None:
    process = start_role(
        deployment,
        "create_batch",
        json.dumps(payload(deployment)),
        str(TASKS),
        "key",
        crash_at="batch.inserted_not_committed:1",
    )
    await deployment.strike(process)
    if VICTIM.is_exact:
        assert await deployment.sql.fetchval("SELECT count(*) FROM jobs") == 0
        assert await deployment.sql.fetchval("SELECT count(*) FROM batches") == 0
    batch = await create(deployment, "key")
    assert await create(deployment, "key") == batch
    deployment.start_maintenance()
    await deployment.start_worker(lab)
    view = await ends(deployment, batch)
    assert view.current.counts.succeeded == TASKS
    ran = len(executions(deployment))
    assert ran == TASKS if VICTIM.is_exact else ran >= TASKS
    await is_consistent(deployment, view)


@pytest.mark.crash
@pytest.mark.parametrize("point", ["batch.completed_not_committed", "batch.completed_not_notified"])
async def test_a_run_completes_once_though_its_keeper_dies(
    deployment: Deployment, point: str
) -> None:
    batch = await create(deployment)
    await deployment.start_worker(lab)
    keeper = start_role(deployment, "upkeep", crash_at=f"{point}:1")
    await deployment.strike(keeper)
    view = await look(deployment, batch)
    committed = point == "batch.completed_not_notified"
    if VICTIM.is_exact:
        assert view.status is (BatchState.COMPLETED if committed else BatchState.RUNNING)
    deployment.start_maintenance()
    view = await ends(deployment, batch)
    assert view.status is BatchState.COMPLETED
    await is_consistent(deployment, view)


@pytest.mark.crash
async def test_a_cancellation_that_was_not_committed_can_be_asked_for_again(
    deployment: Deployment,
) -> None:
    batch = await create(deployment)
    process = start_role(deployment, "cancel_batch", batch, crash_at="batch.cancel_not_committed:1")
    await deployment.strike(process)
    if VICTIM.is_exact:
        assert (await look(deployment, batch)).current.cancel_requested_at is None
    await deployment.engine.extension(BatchRepository).cancel(batch, org=ORG)
    deployment.start_maintenance()
    view = await ends(deployment, batch)
    assert view.status is BatchState.CANCELLED
    assert view.current.counts.cancelled == TASKS
    await is_consistent(deployment, view)


@pytest.mark.crash
async def test_a_rerun_that_was_not_committed_can_be_asked_for_again(
    deployment: Deployment,
) -> None:
    batch = await create(deployment)
    deployment.start_maintenance()
    await deployment.start_worker(lab)
    await ends(deployment, batch)
    process = start_role(
        deployment, "rerun_batch", batch, "again", crash_at="rerun.inserted_not_committed:1"
    )
    await deployment.strike(process)
    if VICTIM.is_exact:
        assert len((await look(deployment, batch)).runs) == 1
    for _ in range(2):
        await deployment.engine.extension(BatchRepository).rerun(
            batch, RunFilter(), org=ORG, idempotency_key="again"
        )
    async with BatchExecutor(deployment.settings, deployment.database) as executor:
        ingester = executor.worker()
        await deployment.run_worker(ingester)
        view = await ends(deployment, batch)
        await deployment.stop_worker(ingester)
    assert len(view.runs) == 2
    assert view.current.counts.succeeded == TASKS
    await is_consistent(deployment, view)
