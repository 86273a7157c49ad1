"""Queries of exports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import asyncpg

from coatcheck.core.queries import jobs as job_store
from coatcheck.db.connection import Connection
from coatcheck.domain.job import ClaimedJob, NewJob
from coatcheck.domain.states import State
from coatcheck.products.batches.model import ExportView
from coatcheck.products.batches.queries import sql


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


async def create(
    db: Connection, job: NewJob, export: UUID, batch: UUID, run: UUID, *, all_runs: bool
) -> None:
    """Insert an export and the job that writes it."""
    await db.fetch(sql("exports/create"), *job_store.columns([job]), export, batch, run, all_runs)


async def get(db: Connection, org: str, batch: UUID, export: UUID) -> ExportView | None:
    rows = await db.fetch(sql("exports/get"), org, batch, export)
    return ExportView(*rows[0]) if rows else None


async def list_exports(db: Connection, org: str, batch: UUID, limit: int) -> list[ExportView]:
    """The newest exports of a batch, newest first."""
    return [ExportView(*row) for row in await db.fetch(sql("exports/list"), org, batch, limit)]


async def get_pending(db: Connection, org: str, export: UUID) -> PendingExport | None:
    """The export to write; None if it was written, or its batch was deleted."""
    rows = await db.fetch(sql("exports/get_pending"), org, export)
    return PendingExport(*rows[0]) if rows else None


async def runs(db: Connection, org: str, batch: UUID, number: int) -> list[ExportRun]:
    """The runs of a batch up to the one with this number, newest first."""
    rows = await db.fetch(sql("exports/runs"), org, batch, number)
    return [ExportRun(*row) for row in rows]


async def ended_by_index(
    db: Connection, org: str, run: UUID, state: State, numbers: Sequence[int], *, bytes_max: int
) -> Sequence[asyncpg.Record]:
    """The tasks with these numbers, which ended in ``state``, as rows of ``ended``: at least one,
    and no more after their results have ``bytes_max`` bytes."""
    return await db.fetch(
        sql("exports/ended_by_index"), org, run, state.value, list(numbers), bytes_max
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
    return await db.fetch(sql("exports/ended"), org, run, state.value, after, rows_max, bytes_max)


async def bad_lines(
    db: Connection, org: str, run: UUID, *, after: tuple[int, int], limit: int
) -> list[PartBadLine]:
    """The invalid lines after a (part, line)."""
    rows = await db.fetch(sql("exports/bad_lines"), org, run, *after, limit)
    return [PartBadLine(*row) for row in rows]


async def update_progress(db: Connection, job: ClaimedJob, export: UUID, tasks: int) -> bool:
    """Record how many tasks are in it so far. Returns whether the job still holds its lease."""
    return bool(
        await db.fetch(sql("exports/update_progress"), job.org, export, job.uuid, job.lease, tasks)
    )


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
    return bool(
        await db.fetch(
            sql("exports/complete"),
            job.org,
            export,
            job.uuid,
            job.lease,
            key,
            size,
            sha256,
            tasks,
            keep_seconds,
        )
    )


async def fail_lost(db: Connection, rows_max: int, *, keep_seconds: int) -> int:
    """Fail the exports whose job ended without writing them. Returns how many."""
    return len(await db.fetch(sql("exports/fail_lost"), rows_max, keep_seconds))


async def expired(db: Connection, rows_max: int) -> list[OldExport]:
    """Exports that have expired."""
    return [OldExport(*row) for row in await db.fetch(sql("exports/expired"), rows_max)]


async def of_batch(db: Connection, org: str, batch: UUID, rows_max: int) -> list[OldExport]:
    """Exports of a batch that is being removed."""
    rows = await db.fetch(sql("exports/of_batch"), org, batch, rows_max)
    return [OldExport(*row) for row in rows]


async def delete(db: Connection, exports: Sequence[OldExport]) -> None:
    """Delete the rows of exports whose blobs were deleted."""
    await db.fetch(
        sql("exports/delete"),
        [export.org for export in exports],
        [export.uuid for export in exports],
    )


async def known(db: Connection, blobs: Sequence[tuple[UUID, str]]) -> set[str]:
    """The keys of these (export id, blob key) that belong to an export that has not expired."""
    rows = await db.fetch(
        sql("exports/known"), [owner for owner, _ in blobs], [key for _, key in blobs]
    )
    return {row[0] for row in rows}
