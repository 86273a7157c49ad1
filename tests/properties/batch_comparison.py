"""Batches in the database against their oracle: rows, what readers see, the outbox, usage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from coatcheck.domain.ids import to_text
from coatcheck.domain.states import State
from coatcheck.products.batches.model import BatchView, TaskStatus
from coatcheck.products.batches.repository import BatchRepository
from tests.properties.batch_model import BatchModel, BatchTold, ModelRun
from tests.properties.job_comparison import (
    JOBS,
    OUTBOX,
    TOLERANCE_UNITS,
    check_bounds,
    check_job,
    check_usage,
)
from tests.properties.job_model import Told
from tests.properties.stepped_deployment import UNIT_SECONDS, SteppedDeployment

_RUNS: Final = """
    SELECT id, group_id AS batch_id, number, parent_run, tasks, total, succeeded, failed, cancelled,
           closed_at IS NOT NULL AS closed, cancel_requested_at IS NOT NULL AS cancel_requested,
           latched_at IS NOT NULL AS latched, succeeded_told,
           extract(epoch FROM completed_at)::float8 AS completed_at
    FROM runs
"""
_BATCHES: Final = """
    SELECT id, current_run, deleted_at IS NOT NULL AS deleted, idempotency_key,
           extract(epoch FROM expires_at)::float8 AS expires_at
    FROM batches
"""
_PARTS: Final = "SELECT id, run_id, state, redrives FROM batch_parts"
_LIMITS: Final = "SELECT org_id, run, held_max FROM run_limits"
_BATCH_OUTBOX: Final = """
    SELECT subject_id, run_id, target_id, event, facts::text
    FROM webhook_deliveries WHERE subject_kind = 'batch'
"""


async def check(deployment: SteppedDeployment, model: BatchModel) -> None:
    """Everything that is written down is as it should be, and there is nothing else."""
    base = deployment.base_seconds - model.now * UNIT_SECONDS
    rows = await deployment.connection.fetch(f"{JOBS} WHERE run_id IS NOT NULL")
    tasks = {row["id"]: row for row in rows}
    assert set(tasks) == set(model.jobs), "other tasks than there should be"
    for uuid, job in model.jobs.items():
        check_job(job, tasks[uuid], base)
        check_bounds(job, tasks[uuid])
    assert all(ends == 1 for ends in model.ends.values()), "a task ended twice"
    await _check_batches(deployment, model, base)
    await _check_runs(deployment, model, base)
    await _check_outbox(deployment, model)
    await check_usage(deployment, model)
    await _check_positions(deployment, model)
    for batch in model.shown():
        await _check_view(deployment, model, batch.uuid)


async def _check_batches(deployment: SteppedDeployment, model: BatchModel, base: float) -> None:
    rows = {row["id"]: row for row in await deployment.connection.fetch(_BATCHES)}
    assert set(rows) == set(model.batches), "other batches than there should be"
    for uuid, batch in model.batches.items():
        row = rows[uuid]
        stored = (row["current_run"], row["deleted"], row["idempotency_key"])
        assert stored == (batch.current.uuid, batch.deleted, batch.key)
        _check_moment(row["expires_at"], batch.expires_at, base)
    limits = {(row[0], "run", row[1]): row[2] for row in await deployment.connection.fetch(_LIMITS)}
    assert limits == model.limits
    parts = {row[0]: tuple(row)[1:] for row in await deployment.connection.fetch(_PARTS)}
    assert parts == {
        part.uuid: (run.uuid, part.state, part.redrives)
        for run in model.runs()
        for part in run.parts
    }


async def _check_runs(deployment: SteppedDeployment, model: BatchModel, base: float) -> None:
    """Counters are what was counted, never less; a run ends once, closed and counted."""
    rows = {row["id"]: row for row in await deployment.connection.fetch(_RUNS)}
    assert set(rows) == {run.uuid for run in model.runs()}
    for run in model.runs():
        row = dict(rows[run.uuid])
        _check_moment(row.pop("completed_at"), run.completed_at, base)
        assert row == _row_of(run)
        if run.completed_at is not None:
            assert row["closed"]
            assert row["succeeded"] + row["failed"] + row["cancelled"] == row["total"]


async def _check_positions(deployment: SteppedDeployment, model: BatchModel) -> None:
    """No row tells of a task that is not there."""
    rows = await deployment.connection.fetch(
        "SELECT run_id, task_index, position FROM batch_positions"
    )
    for row in rows:
        run = model.run_of(row["run_id"])
        assert run is not None
        assert run.positions[row["task_index"]] == row["position"]


def _row_of(run: ModelRun) -> dict[str, Any]:
    return {
        "id": run.uuid,
        "batch_id": run.batch.uuid,
        "number": run.number,
        "parent_run": run.parent,
        "tasks": run.tasks,
        "total": run.total,
        "succeeded": run.counted[State.COMPLETED],
        "failed": run.counted[State.FAILED],
        "cancelled": run.counted[State.CANCELLED],
        "closed": run.closed,
        "cancel_requested": run.cancel_requested,
        "latched": run.latched,
        "succeeded_told": run.succeeded_told,
    }


def _check_moment(stored: float | None, modelled: float | None, base: float) -> None:
    assert (stored is None) == (modelled is None)
    if stored is not None and modelled is not None:
        assert abs((stored - base) / UNIT_SECONDS - modelled) <= TOLERANCE_UNITS


async def _check_outbox(deployment: SteppedDeployment, model: BatchModel) -> None:
    rows: list[Told] = [
        tuple(row)
        for row in await deployment.connection.fetch(f"{OUTBOX} WHERE subject_kind <> 'batch'")
    ]
    told = Counter(rows)
    assert told == model.told, f"too much: {told - model.told}, missing: {model.told - told}"
    of_batches = Counter(
        _batch_told(*row) for row in await deployment.connection.fetch(_BATCH_OUTBOX)
    )
    assert of_batches == model.batch_told, (
        f"too much: {of_batches - model.batch_told}, missing: {model.batch_told - of_batches}"
    )


def _batch_told(batch: Any, run: Any, target: Any, event: str, facts: str) -> BatchTold:
    said = msgspec.json.decode(facts)
    names: tuple[str, ...] = ("succeeded",)
    if event != "tasks.succeeded":
        names = ("status", "run_number", "total", "succeeded", "failed", "cancelled")
    return batch, run, target, event, tuple(said[name] for name in names)


async def _check_view(deployment: SteppedDeployment, model: BatchModel, uuid: Any) -> None:
    """What a reader is shown, rolled up or not: counts by state, as of this moment."""
    batch = model.batches[uuid]
    view = await deployment.engine.extension(BatchRepository).get(to_text(uuid), org=batch.org)
    assert [(run.uuid, run.status, run.counts) for run in view.runs] == [
        (run.uuid, run.status, model.counts_of(run)) for run in batch.runs
    ]
    assert view.whole == model.whole_of(batch), "the batch over all runs"
    found, following = await deployment.engine.extension(BatchRepository).tasks.page_of_all_runs(
        view, status=None, after=None, limit=200
    )
    assert following is None
    latest = model.latest_of(batch, batch.current.number + 1)
    assert [(task.position, task.uuid) for task in found] == [
        (position, task.uuid) for position, task in sorted(latest.items())
    ]
    for status in TaskStatus:
        await _check_status(
            deployment, view, status, [task.uuid for task in found if task.status is status]
        )


async def _check_status(
    deployment: SteppedDeployment, view: BatchView, status: TaskStatus, expected: Sequence[UUID]
) -> None:
    """Page by page, each once."""
    shown: list[UUID] = []
    cursor = None
    while True:
        page, cursor = await deployment.engine.extension(BatchRepository).tasks.page_of_all_runs(
            view, status=status, after=cursor, limit=3
        )
        shown += [task.uuid for task in page]
        if cursor is None:
            break
    assert sorted(shown) == sorted(expected)
