"""Queries that cancel and remove runs of any length, a chunk at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

from coatcheck.core.queries import limits
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.queries import in_transaction
from coatcheck.products.batches.model import ABANDONED_BATCH_SECONDS, task_id
from coatcheck.products.batches.queries import sql

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class CancellingRun(NamedTuple):
    """A cancelled run that has not completed."""

    org: str
    uuid: UUID
    batch: UUID


class RunningTask(NamedTuple):
    """A running task that was asked to stop, and the boot of the worker that holds it."""

    uuid: UUID
    boot: int


class DeletedBatch(NamedTuple):
    """A deleted batch, whose data is being removed. Callers cannot read it."""

    org: str
    uuid: UUID
    deleted_at: datetime


class OldRun(NamedTuple):
    """A run of a deleted batch. If it ``is_quiet``, nothing in it changes any more."""

    uuid: UUID
    tasks: int
    is_quiet: bool


class OldPart(NamedTuple):
    """A part of a run to remove, and the keys of its list and upload, if it has them."""

    uuid: UUID
    source: str
    source_key: str | None
    upload: UUID | None
    upload_key: str | None


# Cancelling


async def cancelling(
    db: Connection, after: CancellingRun | None, rows_max: int
) -> list[CancellingRun]:
    """Cancelled runs that have not completed, after the run ``after``."""
    org, run = ("", UUID(int=0)) if after is None else (after.org, after.uuid)
    rows = await sql.fetch(
        db, "removal/cancelling", after_org=org, after_run=run, rows_max=rows_max
    )
    return [CancellingRun(*row) for row in rows]


async def end_ingest(db: Connection, run: CancellingRun) -> None:
    """End the ingest of a cancelled run: the tasks written so far are its total. A repeat does
    nothing."""
    await sql.fetch(db, "removal/end_ingest", org=run.org, run=run.uuid)


async def cancel_waiting(
    db: Connection, run: CancellingRun, rows_max: int
) -> tuple[int, str | None]:
    """Cancel waiting tasks: up to ``rows_max`` in the queue, and up to ``rows_max`` that wait for
    their time. Returns how many, and their lane."""
    ((tasks, lane),) = await sql.fetch(
        db, "removal/cancel_waiting", org=run.org, run=run.uuid, rows_max=rows_max
    )
    return tasks, lane


async def request_cancel(db: Connection, run: CancellingRun, rows_max: int) -> list[RunningTask]:
    """Ask running tasks to stop. Returns those that were not asked before."""
    rows = await sql.fetch(
        db, "removal/request_cancel", org=run.org, run=run.uuid, rows_max=rows_max
    )
    return [RunningTask(*row) for row in rows]


# Removing


async def expire(db: Connection, rows_max: int) -> int:
    """Delete batches whose retention has ended, or whose failed ingest nobody has acted on for
    long. Returns how many."""
    seconds = float(ABANDONED_BATCH_SECONDS)
    return len(
        await sql.fetch(db, "removal/expire", batches_max=rows_max, abandoned_seconds=seconds)
    )


async def close_idle(db: Connection, rows_max: int) -> int:
    """Close open runs that got no new tasks for long. Returns how many."""
    seconds = float(ABANDONED_BATCH_SECONDS)
    return len(await sql.fetch(db, "removal/close_idle", runs_max=rows_max, seconds=seconds))


async def deleted(db: Connection, after: DeletedBatch | None, rows_max: int) -> list[DeletedBatch]:
    """Deleted batches, after the batch ``after``."""
    time, batch = (_LONG_AGO, UUID(int=0)) if after is None else (after.deleted_at, after.uuid)
    rows = await sql.fetch(
        db, "removal/deleted", after_time=time, after_batch=batch, rows_max=rows_max
    )
    return [DeletedBatch(*row) for row in rows]


async def cancel_runs(db: Connection, batch: DeletedBatch) -> int:
    """Cancel the batch's runs that have not ended, so that nobody claims their tasks. Returns how
    many."""

    async def cancel(connection: RawConnection) -> int:
        rows = await sql.fetch(connection, "removal/cancel_runs", org=batch.org, batch=batch.uuid)
        for row in rows:
            await limits.stop_run(connection, batch.org, row["id"])
        return len(rows)

    return await in_transaction(db, cancel)


async def runs(db: Connection, batch: DeletedBatch) -> list[OldRun]:
    """The runs of the batch, oldest first."""
    rows = await sql.fetch(db, "removal/runs", org=batch.org, batch=batch.uuid)
    return [OldRun(*row) for row in rows]


async def task_blobs(db: Connection, org: str, tasks: Sequence[UUID]) -> list[str]:
    """The blob keys of the tasks' artifacts."""
    rows = await sql.fetch(db, "removal/task_blobs", org=org, ids=tasks)
    return [row["blob_key"] for row in rows]


def last_tasks(run: OldRun, most: int) -> list[UUID]:
    """The ids of the last tasks that a run still has, at most ``most``."""
    first = max(0, run.tasks - most)
    return [UUID(bytes=task_id(run.uuid, index)) for index in range(first, run.tasks)]


async def delete_tasks(db: Connection, org: str, run: OldRun, tasks: Sequence[UUID]) -> None:
    """Delete the ``last_tasks`` of a run, with everything that belongs to them but their blobs."""
    await sql.fetch(
        db,
        "removal/delete_tasks",
        org=org,
        run=run.uuid,
        ids=tasks,
        tasks_before=run.tasks,
        tasks_after=run.tasks - len(tasks),
    )


async def parts(db: Connection, org: str, run: OldRun, rows_max: int) -> list[OldPart]:
    """Parts of a run."""
    rows = await sql.fetch(db, "removal/parts", org=org, run=run.uuid, rows_max=rows_max)
    return [OldPart(*row) for row in rows]


async def delete_parts(db: Connection, org: str, old: Sequence[OldPart]) -> None:
    """Delete parts with their invalid lines and uploads, whose blobs were deleted before."""
    await sql.fetch(
        db,
        "removal/delete_parts",
        org=org,
        parts=[part.uuid for part in old],
        uploads=[part.upload for part in old if part.upload is not None],
    )


async def finish(db: Connection, batch: DeletedBatch) -> bool:
    """Delete a batch of which nothing else is left. Returns false if its usage is not summed up
    yet."""
    return bool(await sql.value(db, "removal/finish", org=batch.org, batch=batch.uuid))
