"""Tasks of runs, for readers. One method a file of ``sql/batch_tasks``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg

from coatcheck.domain.batches import TaskView, run_flow, task_id
from coatcheck.domain.limits import RESULT_INLINE_BYTES_MAX, page_result_bytes_max
from coatcheck.domain.states import State
from coatcheck.store.line import Line
from coatcheck.store.sql import sql

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Failures(NamedTuple):
    """How many tasks failed with which code, the commonest first, and of how many that was read."""

    by_code: Sequence[tuple[str, int]]
    counted: int


class QueuePlace(NamedTuple):
    """Where a task stands in the queue."""

    flow: str
    run_at: datetime
    uuid: UUID


async def by_index(line: Line, org: str, run: UUID, first: int, limit: int) -> list[TaskView]:
    """Tasks numbered ``first`` and on."""
    ids = [UUID(bytes=task_id(run, index)) for index in range(first, first + limit)]
    rows = await line.fetch(sql("batch_tasks/by_ids"), org, run, page_result_bytes_max(limit), ids)
    return [_view(row) for row in rows]


async def ended(
    line: Line, org: str, run: UUID, state: State, *, after: int, limit: int
) -> list[TaskView]:
    """Tasks that ended in ``state``, by number, those after the one numbered ``after``."""
    shown_bytes_max = page_result_bytes_max(limit)
    rows = await line.fetch(
        sql("batch_tasks/ended"), org, run, shown_bytes_max, state.value, after, limit
    )
    return [_view(row) for row in rows]


async def held(line: Line, org: str, run: UUID, *, after: int, limit: int) -> list[TaskView]:
    """Tasks that run now, by number."""
    rows = await line.fetch(
        sql("batch_tasks/held"), org, run, page_result_bytes_max(limit), after, limit
    )
    return [_view(row) for row in rows]


async def queued(
    line: Line, org: str, batch: UUID, run: UUID, *, after: QueuePlace | None, limit: int
) -> list[tuple[TaskView, QueuePlace]]:
    """Tasks in the queue, in its order, each with its place."""
    start = after or QueuePlace(run_flow(run), _LONG_AGO, UUID(int=0))
    rows = await line.fetch(
        sql("batch_tasks/queued"), org, run, page_result_bytes_max(limit), batch, *start, limit
    )
    return [(_view(row[:-2]), QueuePlace(row["flow"], row["run_at"], row["id"])) for row in rows]


async def postponed(line: Line, org: str, run: UUID, *, after: int, limit: int) -> list[TaskView]:
    """Tasks that wait for their time, by number."""
    rows = await line.fetch(
        sql("batch_tasks/postponed"), org, run, page_result_bytes_max(limit), after, limit
    )
    return [_view(row) for row in rows]


async def failures(line: Line, org: str, run: UUID, *, tasks_max: int, codes_max: int) -> Failures:
    """The codes that a run's tasks failed with, of the first ``tasks_max`` that did."""
    rows = await line.fetch(sql("batch_tasks/failures"), org, run, tasks_max, codes_max)
    return Failures(
        [(row["code"], row["tasks"]) for row in rows], int(rows[0]["counted"]) if rows else 0
    )


async def get(line: Line, org: str, batch: UUID, task: UUID) -> TaskView | None:
    """A task of any run of the batch, with its result unless that is long, and its payload."""
    rows = await line.fetch(sql("batch_tasks/get"), org, batch, task, RESULT_INLINE_BYTES_MAX)
    return _view(rows[0]) if rows else None


def _view(row: asyncpg.Record | Sequence[Any]) -> TaskView:
    uuid, index, custom_id, state, *rest = row
    return TaskView(uuid, index, custom_id, State(state), *rest)
