"""Exports of runs. One method a file of ``sql/batch_exports``."""

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
from coatcheck.products.batches.sql import sql


@dataclass(frozen=True, slots=True)
class ExportOrder:
    """All that whoever writes an export has to know, as of one moment."""

    uuid: UUID
    batch: UUID
    run: UUID
    service: str
    service_endpoint: str
    endpoint: str
    run_number: int
    begun_at: datetime
    all_runs: bool
    """Whether it is of the batch as a whole, as of this run and those before it."""


class ExportRun(NamedTuple):
    """A run whose tasks an export may hold: ``latest`` says how many of those that ended each way
    no later run has taken in again."""

    uuid: UUID
    number: int
    mirrored: int
    tasks: int
    new_tasks: int
    completed_at: datetime | None
    latest_succeeded: int
    latest_failed: int
    latest_cancelled: int


class ListedLine(NamedTuple):
    """A line that is no task, and the position of its part."""

    part: int
    line: int
    code: str
    message: str


class OldExport(NamedTuple):
    """An export that is to go. ``blob_key`` is None if it was never written."""

    org: str
    uuid: UUID
    blob_key: str | None


async def create(
    line: Connection, job: NewJob, export: UUID, batch: UUID, run: UUID, *, all_runs: bool
) -> None:
    """Write down that an export is wanted, with the job that writes it."""
    await line.fetch(sql("exports/create"), *job_store.columns([job]), export, batch, run, all_runs)


async def get(line: Connection, org: str, batch: UUID, export: UUID) -> ExportView | None:
    rows = await line.fetch(sql("exports/get"), org, batch, export)
    return ExportView(*rows[0]) if rows else None


async def list_exports(line: Connection, org: str, batch: UUID, limit: int) -> list[ExportView]:
    """The newest exports of a batch."""
    return [ExportView(*row) for row in await line.fetch(sql("exports/list"), org, batch, limit)]


async def order(line: Connection, org: str, export: UUID) -> ExportOrder | None:
    """What is to be written, or None if that is not wanted any more, or done."""
    rows = await line.fetch(sql("exports/order"), org, export)
    return ExportOrder(*rows[0]) if rows else None


async def runs(line: Connection, org: str, batch: UUID, number: int) -> list[ExportRun]:
    """The runs of a batch as of one of them, the newest first."""
    rows = await line.fetch(sql("exports/runs"), org, batch, number)
    return [ExportRun(*row) for row in rows]


async def of_numbers(
    line: Connection, org: str, run: UUID, state: State, numbers: Sequence[int], *, bytes_max: int
) -> Sequence[asyncpg.Record]:
    """Tasks of these numbers, which ended in ``state``, as ``ended`` has them: one at least, and no
    further one once their results have ``bytes_max`` bytes."""
    return await line.fetch(
        sql("exports/of_numbers"), org, run, state.value, list(numbers), bytes_max
    )


async def ended(
    line: Connection,
    org: str,
    run: UUID,
    state: State,
    *,
    after: int,
    rows_max: int,
    bytes_max: int,
) -> Sequence[asyncpg.Record]:
    """The next tasks that ended in ``state``, rows as they come: id, number, custom id, attempts,
    when it ended, result, error code, error message, its artifacts as JSON, its position and run.

    At most ``rows_max`` of them, and no further one once their results have ``bytes_max`` bytes.
    None at all: there are no more.
    """
    return await line.fetch(sql("exports/ended"), org, run, state.value, after, rows_max, bytes_max)


async def bad_lines(
    line: Connection, org: str, run: UUID, *, after: tuple[int, int], limit: int
) -> list[ListedLine]:
    """The lines that are no tasks, those after a (part, line)."""
    rows = await line.fetch(sql("exports/bad_lines"), org, run, *after, limit)
    return [ListedLine(*row) for row in rows]


async def show_progress(line: Connection, job: ClaimedJob, export: UUID, tasks: int) -> bool:
    """Say how many tasks are in it. Whether it is still the job's to write."""
    return bool(
        await line.fetch(sql("exports/show_progress"), job.org, export, job.uuid, job.lease, tasks)
    )


async def complete(
    line: Connection,
    job: ClaimedJob,
    export: UUID,
    key: str,
    size: int,
    sha256: bytes,
    tasks: int,
    *,
    keep_seconds: int,
) -> bool:
    """Say that it is there in full. Whether that counts; if not, its blob is nobody's."""
    return bool(
        await line.fetch(
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


async def fail_lost(line: Connection, rows_max: int, *, keep_seconds: int) -> int:
    """Fail exports whose job has ended without writing them. How many."""
    return len(await line.fetch(sql("exports/fail_lost"), rows_max, keep_seconds))


async def expired(line: Connection, rows_max: int) -> list[OldExport]:
    """Exports whose time is up."""
    return [OldExport(*row) for row in await line.fetch(sql("exports/expired"), rows_max)]


async def of_batch(line: Connection, org: str, batch: UUID, rows_max: int) -> list[OldExport]:
    """Exports of a batch that is being removed."""
    rows = await line.fetch(sql("exports/of_batch"), org, batch, rows_max)
    return [OldExport(*row) for row in rows]


async def delete(line: Connection, exports: Sequence[OldExport]) -> None:
    """Delete the rows of exports, whose blobs are gone."""
    await line.fetch(
        sql("exports/delete"),
        [export.org for export in exports],
        [export.uuid for export in exports],
    )


async def known(line: Connection, blobs: Sequence[tuple[UUID, str]]) -> set[str]:
    """Which of these (export id, blob key) an export is in whose time is not up."""
    rows = await line.fetch(
        sql("exports/known"), [owner for owner, _ in blobs], [key for _, key in blobs]
    )
    return {row[0] for row in rows}
