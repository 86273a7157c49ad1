"""A run's counters against a count of its rows (invariant H)."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import asyncpg

from coatcheck.db.connection import Connection
from coatcheck.domain.states import State
from coatcheck.products.batches.model import BatchView, RunView, TaskStatus, task_status
from coatcheck.products.batches.repository import read


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
    line = Connection(dsn, name="recount")
    try:
        view = await read(line, org, batch)
    finally:
        await line.close()
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
    await _whole_equals_recount(dsn, org, view)
    return view


async def _whole_equals_recount(dsn: str, org: str, view: BatchView) -> None:
    """The counts over all runs against every task's latest row, by its position."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            """
            SELECT DISTINCT ON (position) coalesce(p.position, j.task_index) AS position,
                   j.state::text
            FROM runs AS r
            JOIN jobs AS j ON j.org_id = r.org_id AND j.run_id = r.id
            LEFT JOIN batch_positions AS p
                ON p.org_id = r.org_id AND p.run_id = r.id AND p.task_index = j.task_index
            WHERE r.org_id = $1 AND r.group_id = $2
            ORDER BY position, r.number DESC
            """,
            org,
            view.uuid,
        )
    finally:
        await connection.close()
    assert [row["position"] for row in rows] == list(range(len(rows))), "no position is left out"
    counted = Counter(task_status(State(row["state"])) for row in rows)
    whole = view.whole
    shown = {
        TaskStatus.PENDING: whole.pending,
        TaskStatus.RUNNING: whole.running,
        TaskStatus.SUCCEEDED: whole.succeeded,
        TaskStatus.FAILED: whole.failed,
        TaskStatus.CANCELLED: whole.cancelled,
    }
    assert +Counter(shown) == counted, "the batch as a whole"
    assert whole.total == len(rows)
