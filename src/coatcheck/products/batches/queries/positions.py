"""Queries of positions.

A task keeps its position in the batch through all reruns (``schema/0001_batches.sql``). The latest
task of a position is in the newest run that has the position: a run that mirrors it, where the
task's number is its position, or a run that a row of ``batch_positions`` names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from coatcheck.db.connection import Connection, RawConnection
from coatcheck.products.batches.model import MirrorRun, TaskPlace
from coatcheck.products.batches.queries import sql


class EarlierRun(NamedTuple):
    """A run that a rerun may repeat. Its ``new_tasks`` are not in any run before it."""

    number: int
    uuid: UUID
    tasks: int
    mirrored: int
    new_tasks: int


async def earlier_runs(
    db: Connection | RawConnection, org: str, batch: UUID, before: int
) -> list[EarlierRun]:
    """The runs of a batch with numbers below ``before``, oldest first."""
    rows = await db.fetch(sql("positions/earlier_runs"), org, batch, before)
    return [EarlierRun(*row) for row in rows]


async def of_tasks(db: Connection, org: str, run: UUID, numbers: Sequence[int]) -> list[int]:
    """The positions of a run's tasks with these numbers."""
    rows = await db.fetch(sql("positions/of_tasks"), org, run, list(numbers))
    return [row["position"] for row in rows]


async def latest(
    db: Connection,
    org: str,
    batch: UUID,
    runs: Sequence[MirrorRun],
    positions: Sequence[int],
    before: int,
) -> list[TaskPlace]:
    """The latest tasks of positions, among the runs with numbers below ``before``.

    ``runs`` has all of these runs, and one of them has each position.
    """
    newest_first = sorted((run for run in runs if run.number < before), reverse=True)
    named = {}
    if any(run.mirrored < run.tasks for run in newest_first):
        rows = await db.fetch(sql("positions/latest"), org, batch, list(positions), before)
        named = {row["position"]: row for row in rows}
    found = []
    for position in positions:
        mirror = next((run for run in newest_first if run.mirrored > position), None)
        row = named.get(position)
        if row is not None and (mirror is None or row["run_number"] > mirror.number):
            found.append(TaskPlace(row["run_id"], row["task_index"]))
        else:
            assert mirror is not None, "every position belongs to a run"
            found.append(TaskPlace(mirror.uuid, position))
    return found
