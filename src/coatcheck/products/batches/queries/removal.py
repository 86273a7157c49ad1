"""Ends and removes runs of any length, a chunk at a time. One method a file of
``sql/batch_removal``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

from coatcheck.core.queries import limits
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.domain.limits import FORGOTTEN_BATCH_SECONDS
from coatcheck.products.batches.model import task_id
from coatcheck.products.batches.sql import sql

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class CancellingRun(NamedTuple):
    """A run that was cancelled, and has not completed."""

    org: str
    uuid: UUID
    batch: UUID


class HeldTask(NamedTuple):
    """A task that was asked to stop, and the boot of its holder."""

    uuid: UUID
    boot: int


class DeletedBatch(NamedTuple):
    """A batch that nobody sees any more."""

    org: str
    uuid: UUID
    deleted_at: datetime


class OldRun(NamedTuple):
    """A run of such a batch. In one that ``is_quiet`` nothing happens any more."""

    uuid: UUID
    tasks: int
    is_quiet: bool


class OldPart(NamedTuple):
    """A part of such a run, and where its list is, if there is one."""

    uuid: UUID
    source: str
    source_key: str | None
    upload: UUID | None
    upload_key: str | None


# Cancelling


async def cancelling(
    db: Connection, after: CancellingRun | None, rows_max: int
) -> list[CancellingRun]:
    """Runs that were cancelled and have not completed, those after ``after``."""
    place = ("", UUID(int=0)) if after is None else (after.org, after.uuid)
    rows = await db.fetch(sql("removal/cancelling"), *place, rows_max)
    return [CancellingRun(*row) for row in rows]


async def end_intake(db: Connection, run: CancellingRun) -> None:
    """Take no more tasks in; what was written so far is all there is. A repeat does nothing."""
    await db.fetch(sql("removal/end_intake"), run.org, run.uuid)


async def cancel_waiting(
    db: Connection, run: CancellingRun, rows_max: int
) -> tuple[int, str | None]:
    """Cancel tasks that wait: up to ``rows_max`` in the queue, and as many others. How many, and
    in which lane they were."""
    rows = await db.fetch(sql("removal/cancel_waiting"), run.org, run.uuid, rows_max)
    tasks, lane = rows[0]
    return tasks, lane


async def ask_to_stop(db: Connection, run: CancellingRun, rows_max: int) -> list[HeldTask]:
    """Ask tasks that run to stop. Those that were not asked before."""
    rows = await db.fetch(sql("removal/ask_to_stop"), run.org, run.uuid, rows_max)
    return [HeldTask(*row) for row in rows]


# Removing


async def expire(db: Connection, rows_max: int) -> int:
    """Have batches removed whose retention has ended, or that are long forgotten. How many."""
    return len(await db.fetch(sql("removal/expire"), rows_max, float(FORGOTTEN_BATCH_SECONDS)))


async def close_idle(db: Connection, rows_max: int) -> int:
    """Close open runs that nothing was added to for long. How many."""
    return len(await db.fetch(sql("removal/close_idle"), rows_max, float(FORGOTTEN_BATCH_SECONDS)))


async def deleted(db: Connection, after: DeletedBatch | None, rows_max: int) -> list[DeletedBatch]:
    """Batches that are to be removed, those after ``after``."""
    place = (_LONG_AGO, UUID(int=0)) if after is None else (after.deleted_at, after.uuid)
    rows = await db.fetch(sql("removal/deleted"), *place, rows_max)
    return [DeletedBatch(*row) for row in rows]


async def cancel_runs(db: Connection, batch: DeletedBatch) -> int:
    """Cancel those of its runs that still go on: nothing of them is claimed any more. How many."""

    async def cancel(connection: RawConnection) -> int:
        async with connection.transaction():
            rows = await connection.fetch(sql("removal/cancel_runs"), batch.org, batch.uuid)
            for row in rows:
                await limits.stop_run(connection, batch.org, row["id"])
        return len(rows)

    return await db.run(cancel)


async def runs(db: Connection, batch: DeletedBatch) -> list[OldRun]:
    """Its runs, the oldest first."""
    rows = await db.fetch(sql("removal/runs"), batch.org, batch.uuid)
    return [OldRun(*row) for row in rows]


async def task_blobs(db: Connection, org: str, tasks: Sequence[UUID]) -> list[str]:
    """The keys of the artifacts that tasks made."""
    rows = await db.fetch(sql("removal/task_blobs"), org, tasks)
    return [row["blob_key"] for row in rows]


def last_tasks(run: OldRun, most: int) -> list[UUID]:
    """The ids of the last tasks that a run still has."""
    first = max(0, run.tasks - most)
    return [UUID(bytes=task_id(run.uuid, index)) for index in range(first, run.tasks)]


async def delete_tasks(db: Connection, org: str, run: OldRun, tasks: Sequence[UUID]) -> None:
    """Delete the ``last_tasks`` of a run, with all they left but their blobs."""
    await db.fetch(
        sql("removal/delete_tasks"),
        org,
        run.uuid,
        tasks,
        run.tasks,
        run.tasks - len(tasks),
    )


async def parts(db: Connection, org: str, run: OldRun, rows_max: int) -> list[OldPart]:
    """Parts of a run."""
    rows = await db.fetch(sql("removal/parts"), org, run.uuid, rows_max)
    return [OldPart(*row) for row in rows]


async def delete_parts(db: Connection, org: str, old: Sequence[OldPart]) -> None:
    """Delete parts with their bad lines and the uploads they took, whose blobs are gone."""
    await db.fetch(
        sql("removal/delete_parts"),
        org,
        [part.uuid for part in old],
        [part.upload for part in old if part.upload is not None],
    )


async def finish(db: Connection, batch: DeletedBatch) -> bool:
    """Delete a batch of which nothing else is left. False: what it used is not summed up yet."""
    rows = await db.fetch(sql("removal/finish"), batch.org, batch.uuid)
    return bool(rows[0]["batches"])
