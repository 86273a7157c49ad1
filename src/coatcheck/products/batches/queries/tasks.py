"""Queries that read tasks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg

from coatcheck.db.connection import Connection
from coatcheck.domain.limits import RESULT_INLINE_BYTES_MAX, page_result_bytes_max
from coatcheck.domain.runs import run_queue_key
from coatcheck.domain.states import State
from coatcheck.products.batches.model import TaskPlace, TaskView
from coatcheck.products.batches.queries import sql

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Failures(NamedTuple):
    """Counts of failed tasks by error code, most frequent first, and how many were counted."""

    by_code: Sequence[tuple[str, int]]
    counted: int


class QueuePlace(NamedTuple):
    """The place of a task in the queue."""

    queue_key: str
    run_at: datetime
    uuid: UUID


class ScannedTasks(NamedTuple):
    """Scanned tasks: the numbers of those that are the latest of their position, the number of the
    last one scanned, and whether there may be more."""

    latest: Sequence[int]
    last: int
    more: bool


class RunPlace(NamedTuple):
    """A run among those of its batch, to find which of its tasks are the latest of their positions.
    Later runs have all positions below ``mirrored_after``; only runs below ``before`` count."""

    batch: UUID
    run: UUID
    number: int
    mirrored_after: int
    before: int


async def by_place(
    db: Connection, org: str, places: Sequence[TaskPlace], limit: int
) -> list[TaskView]:
    """These tasks, in this order. ``limit`` is the length of the page."""
    rows = await db.fetch(
        sql("tasks/by_ids"),
        org,
        list({place.run for place in places}),
        page_result_bytes_max(limit),
        [place.uuid for place in places],
    )
    return [_view(row) for row in rows]


async def by_index(db: Connection, org: str, run: UUID, first: int, limit: int) -> list[TaskView]:
    """Tasks with numbers from ``first``."""
    places = [TaskPlace(run, index) for index in range(first, first + limit)]
    return await by_place(db, org, places, limit)


async def latest_ended(
    db: Connection,
    org: str,
    place: RunPlace,
    state: State,
    *,
    after: int,
    scanned_max: int,
    error_codes: Sequence[str] = (),
) -> ScannedTasks:
    """Tasks of a run that ended in ``state`` and that no later run has repeated. The scan starts
    after the number ``after`` and covers the next ``scanned_max`` that ended in ``state``."""
    rows = await db.fetch(
        sql("tasks/latest_ended"),
        org,
        *place,
        state.value,
        list(error_codes) or None,
        after,
        scanned_max,
    )
    return ScannedTasks(
        [row["task_index"] for row in rows if row["is_latest"]],
        rows[-1]["task_index"] if rows else after,
        len(rows) == scanned_max,
    )


async def latest_failures(
    db: Connection, org: str, place: RunPlace, *, scanned_max: int
) -> tuple[dict[str, int], int]:
    """Counts by error code of a run's failed tasks that no later run has repeated, and how many
    tasks were scanned."""
    rows = await db.fetch(sql("tasks/latest_failures"), org, *place, scanned_max)
    by_code = {row["code"]: row["tasks"] for row in rows if row["tasks"]}
    return by_code, sum(row["seen"] for row in rows)


async def ended(
    db: Connection, org: str, run: UUID, state: State, *, after: int, limit: int
) -> list[TaskView]:
    """Tasks that ended in ``state``, by number, after the number ``after``."""
    shown_bytes_max = page_result_bytes_max(limit)
    rows = await db.fetch(sql("tasks/ended"), org, run, shown_bytes_max, state.value, after, limit)
    return [_view(row) for row in rows]


async def running(db: Connection, org: str, run: UUID, *, after: int, limit: int) -> list[TaskView]:
    """Running tasks, by number."""
    rows = await db.fetch(
        sql("tasks/running"), org, run, page_result_bytes_max(limit), after, limit
    )
    return [_view(row) for row in rows]


async def queued(
    db: Connection, org: str, batch: UUID, run: UUID, *, after: QueuePlace | None, limit: int
) -> list[tuple[TaskView, QueuePlace]]:
    """Queued tasks in the order of the queue, each with its place."""
    start = after or QueuePlace(run_queue_key(run), _LONG_AGO, UUID(int=0))
    rows = await db.fetch(
        sql("tasks/queued"), org, run, page_result_bytes_max(limit), batch, *start, limit
    )
    return [(_view(row[:-2]), QueuePlace(row["flow"], row["run_at"], row["id"])) for row in rows]


async def scheduled(
    db: Connection, org: str, run: UUID, *, after: int, limit: int
) -> list[TaskView]:
    """Tasks that wait for a time to start or to be retried, by number."""
    rows = await db.fetch(
        sql("tasks/scheduled"), org, run, page_result_bytes_max(limit), after, limit
    )
    return [_view(row) for row in rows]


async def failures(
    db: Connection, org: str, run: UUID, *, tasks_max: int, codes_max: int
) -> Failures:
    """Counts by error code of a run's first ``tasks_max`` failed tasks."""
    rows = await db.fetch(sql("tasks/failures"), org, run, tasks_max, codes_max)
    return Failures(
        [(row["code"], row["tasks"]) for row in rows], int(rows[0]["counted"]) if rows else 0
    )


async def get(db: Connection, org: str, batch: UUID, task: UUID) -> TaskView | None:
    """A task of any run of the batch, with its payload, and its result unless that is long."""
    rows = await db.fetch(sql("tasks/get"), org, batch, task, RESULT_INLINE_BYTES_MAX)
    return _view(rows[0]) if rows else None


def _view(row: asyncpg.Record | Sequence[Any]) -> TaskView:
    uuid, index, custom_id, state, *rest = row
    return TaskView(uuid, index, custom_id, State(state), *rest)
