"""Creates, reads, completes and removes exports, for the routes, the exporter and maintenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg

from coatcheck.core.queries import jobs
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.notifications import READY, Notifier
from coatcheck.db.queries import in_transaction
from coatcheck.domain.errors import JobNotFound
from coatcheck.domain.ids import InvalidId, from_text, new_id, to_text
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.products.batches.model import (
    EXPORT_ENDPOINT,
    BatchView,
    ExportView,
    RunView,
    internal_job,
)
from coatcheck.products.batches.queries import sql

_LISTED_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class PendingExport:
    """An export to write, with everything that writing it needs."""

    uuid: UUID
    batch: UUID
    run: UUID
    service: str
    service_endpoint: str
    endpoint: str
    run_number: int
    begun_at: datetime
    all_runs: bool
    """Whether it has the tasks of the batch as a whole, as of this run and those before it."""


class ExportRun(NamedTuple):
    """A run whose tasks an export may have. The ``latest`` counts are of tasks that no later run
    has repeated."""

    uuid: UUID
    number: int
    mirrored: int
    tasks: int
    new_tasks: int
    completed_at: datetime | None
    latest_succeeded: int
    latest_failed: int
    latest_cancelled: int


class PartBadLine(NamedTuple):
    """An invalid line, and the position of its part."""

    part: int
    line: int
    code: str
    message: str


class OldExport(NamedTuple):
    """An export to delete. ``blob_key`` is None if it was never written."""

    org: str
    uuid: UUID
    blob_key: str | None


class ExportRepository:
    """Creates and reads exports. Callers pass a batch that they have read, and so may see."""

    def __init__(self, db: Connection, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def create(
        self, view: BatchView, run: RunView | None, *, request_id: str | None
    ) -> ExportView:
        """Request an export of the ended tasks of a run; for None, of the batch as a whole: each
        task once, with its latest result. The request is durable when this returns.

        If the run has not ended, the export has the tasks that ended before it was written. Raises
        JobNotFound if the batch was deleted meanwhile.
        """
        export = new_id()
        job = internal_job(
            view.org, Lane.BULK, EXPORT_ENDPOINT, {"export": to_text(export)}, request_id
        )
        last = run or view.current

        async def insert(connection: RawConnection) -> None:
            await jobs.insert(connection, [job])
            await sql.fetch(
                connection,
                "exports/create",
                org=view.org,
                export=export,
                batch=view.uuid,
                run=last.uuid,
                job=job.uuid,
                all_runs=run is None,
            )

        await in_transaction(self._db, insert)
        self._notifier.notify(READY, [EXPORT_ENDPOINT])
        return await self._get(view, export)

    async def get(self, view: BatchView, export_id: str) -> ExportView:
        """Read an export. Raises JobNotFound, also if it has expired."""
        try:
            export = from_text(export_id)
        except InvalidId as error:
            raise JobNotFound("there is no such export") from error
        return await self._get(view, export)

    async def list(self, view: BatchView) -> Sequence[ExportView]:
        """The newest exports of a batch, newest first."""
        rows = await sql.fetch(
            self._db, "exports/list", org=view.org, batch=view.uuid, limit=_LISTED_MAX
        )
        return [ExportView(*row) for row in rows]

    async def _get(self, view: BatchView, export: UUID) -> ExportView:
        row = await sql.first(self._db, "exports/get", org=view.org, batch=view.uuid, export=export)
        if row is None:
            raise JobNotFound("there is no such export")
        return ExportView(*row)


# For the exporter


async def get_pending(db: Connection, org: str, export: UUID) -> PendingExport | None:
    """The export to write; None if it was written, or its batch was deleted."""
    row = await sql.first(db, "exports/get_pending", org=org, export=export)
    return None if row is None else PendingExport(*row)


async def runs(db: Connection, org: str, batch: UUID, number: int) -> list[ExportRun]:
    """The runs of a batch up to the one with this number, newest first."""
    rows = await sql.fetch(db, "exports/runs", org=org, batch=batch, number=number)
    return [ExportRun(*row) for row in rows]


async def ended_by_index(
    db: Connection, org: str, run: UUID, state: State, numbers: Sequence[int], *, bytes_max: int
) -> Sequence[asyncpg.Record]:
    """The tasks with these numbers, which ended in ``state``, as rows of ``ended``: at least one,
    and no more after their results have ``bytes_max`` bytes."""
    return await sql.fetch(
        db,
        "exports/ended_by_index",
        org=org,
        run=run,
        state=state.value,
        numbers=list(numbers),
        bytes_max=bytes_max,
    )


async def ended(
    db: Connection,
    org: str,
    run: UUID,
    state: State,
    *,
    after: int,
    rows_max: int,
    bytes_max: int,
) -> Sequence[asyncpg.Record]:
    """The next tasks that ended in ``state``, as raw rows: id, number, custom id, attempts, time of
    its end, result, error code, error message, artifacts as JSON, position, run.

    At most ``rows_max`` rows, and no more after their results have ``bytes_max`` bytes. No rows
    mean that there are no more.
    """
    return await sql.fetch(
        db,
        "exports/ended",
        org=org,
        run=run,
        state=state.value,
        after=after,
        rows_max=rows_max,
        bytes_max=bytes_max,
    )


async def bad_lines(
    db: Connection, org: str, run: UUID, *, after: tuple[int, int], limit: int
) -> list[PartBadLine]:
    """The invalid lines after a (part, line)."""
    part, line = after
    rows = await sql.fetch(
        db, "exports/bad_lines", org=org, run=run, after_part=part, after_line=line, limit=limit
    )
    return [PartBadLine(*row) for row in rows]


async def update_progress(db: Connection, job: ClaimedJob, export: UUID, tasks: int) -> bool:
    """Record how many tasks are in it so far. Returns whether the job still holds its lease."""
    updated = await sql.fetch(
        db,
        "exports/update_progress",
        org=job.org,
        export=export,
        job=job.uuid,
        lease=job.lease,
        tasks=tasks,
    )
    return bool(updated)


async def complete(
    db: Connection,
    job: ClaimedJob,
    export: UUID,
    key: str,
    size: int,
    sha256: bytes,
    tasks: int,
    *,
    keep_seconds: int,
) -> bool:
    """Mark it as completed. Returns false if the lease was lost or the batch deleted: the caller
    then deletes the blob."""
    completed = await sql.fetch(
        db,
        "exports/complete",
        org=job.org,
        export=export,
        job=job.uuid,
        lease=job.lease,
        blob_key=key,
        size=size,
        sha256=sha256,
        tasks=tasks,
        keep_seconds=keep_seconds,
    )
    return bool(completed)


# For maintenance


async def fail_lost(db: Connection, rows_max: int, *, keep_seconds: int) -> int:
    """Fail the exports whose job ended without writing them. Returns how many."""
    rows = await sql.fetch(db, "exports/fail_lost", rows_max=rows_max, keep_seconds=keep_seconds)
    return len(rows)


async def expired(db: Connection, rows_max: int) -> list[OldExport]:
    """Exports that have expired."""
    rows = await sql.fetch(db, "exports/expired", rows_max=rows_max)
    return [OldExport(*row) for row in rows]


async def of_batch(db: Connection, org: str, batch: UUID, rows_max: int) -> list[OldExport]:
    """Exports of a batch that is being removed."""
    rows = await sql.fetch(db, "exports/of_batch", org=org, batch=batch, rows_max=rows_max)
    return [OldExport(*row) for row in rows]


async def delete(db: Connection, exports: Sequence[OldExport]) -> None:
    """Delete the rows of exports whose blobs were deleted."""
    await sql.fetch(
        db,
        "exports/delete",
        orgs=[export.org for export in exports],
        ids=[export.uuid for export in exports],
    )


async def known(db: Connection, blobs: Sequence[tuple[UUID, str]]) -> set[str]:
    """The keys of these (export id, blob key) that belong to an export that has not expired."""
    ids, keys = [export for export, _ in blobs], [key for _, key in blobs]
    rows = await sql.fetch(db, "exports/known", ids=ids, keys=keys)
    return {row[0] for row in rows}
