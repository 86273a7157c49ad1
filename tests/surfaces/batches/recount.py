"""A run's counters against a count of its rows (invariant H)."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import asyncpg

from coatcheck.domain.batches import BatchView, RunView, TaskStatus, task_status
from coatcheck.domain.states import State
from coatcheck.store import batches
from coatcheck.store.line import Line


async def recounted(dsn: str, org: str, run: RunView) -> Counter[TaskStatus]:
    """How many tasks of each status there are, row by row. Fails if their numbers have holes."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            """
            SELECT state::text, count(*), count(DISTINCT task_index), min(task_index),
                   max(task_index)
            FROM jobs
            WHERE org_id = $1 AND run_id = $2
            GROUP BY state
            """,
            org,
            run.uuid,
        )
    finally:
        await connection.close()
    counts: Counter[TaskStatus] = Counter()
    for state, count, distinct, _, _ in rows:
        assert distinct == count, "no number is given twice"
        counts[task_status(State(state))] += count
    if rows:
        assert min(row["min"] for row in rows) == 0
        assert max(row["max"] for row in rows) == counts.total() - 1, "no number is left out"
    return counts


async def counters_equal_recounts(dsn: str, org: str, batch: UUID) -> BatchView:
    """Read a batch and recount every run of it. The batch as it was read.

    Nothing may run meanwhile: the two are not read at the same moment.
    """
    line = Line(dsn, name="recount")
    try:
        view = await batches.get(line, org, batch)
    finally:
        await line.close()
    assert view is not None, "there is no such batch"
    for run in view.runs:
        counted = await recounted(dsn, org, run)
        shown = Counter(
            {
                TaskStatus.PENDING: run.counts.pending,
                TaskStatus.RUNNING: run.counts.running,
                TaskStatus.SUCCEEDED: run.counts.succeeded,
                TaskStatus.FAILED: run.counts.failed,
                TaskStatus.CANCELLED: run.counts.cancelled,
            }
        )
        assert +shown == counted, f"run {run.number}"
        assert run.counts.total == counted.total()
    return view
