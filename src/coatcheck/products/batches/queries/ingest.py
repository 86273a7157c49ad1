"""Queries of the ingest.

A chunk's tasks are numbered from the run's count in the snapshot, and the transaction that writes
them advances the run from that count. So a chunk is written once, however many workers write it:
the second one meets the same ids or finds the run advanced, gets ``Overtaken``, and reads a new
snapshot.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

import asyncpg

from coatcheck.core.queries import sql as core_sql
from coatcheck.core.queries.jobs import columns
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.domain.ids import newest_possible
from coatcheck.domain.job import NewJob
from coatcheck.domain.limits import BAD_LINES_KEPT_MAX, ERROR_MESSAGE_CHARACTERS_MAX, RUN_TASKS_MAX
from coatcheck.domain.runs import run_queue_key
from coatcheck.domain.states import State
from coatcheck.products.batches.model import BadLine, FailedPart, IngestSnapshot, TaskPlace, task_id
from coatcheck.products.batches.queries import sql, task_copy
from coatcheck.products.batches.queries.task_copy import NOTIFIES_FAILURES, TaskChunk, TooManyTasks

Result = TypeVar("Result")


class Overtaken(Exception):
    """Another process has advanced or ended the part: read a new snapshot."""


@dataclass(frozen=True, slots=True)
class LostPart:
    """A part that waits for its ingest without a job, and the state and error of its last job."""

    org: str
    part: UUID
    batch: UUID
    ingest_job: UUID | None
    redrives: int
    request_id: str | None
    job_state: State | None
    error_code: str | None
    error_message: str | None


async def read_snapshot(db: Connection, org: str, part: UUID) -> IngestSnapshot | None:
    """Read what the ingest of a part needs; None if the part does not exist any more."""
    rows = await db.fetch(sql("ingest/snapshot"), org, part)
    return IngestSnapshot(*rows[0]) if rows else None


async def write_chunk(
    db: Connection,
    snapshot: IngestSnapshot,
    chunk: TaskChunk,
    *,
    is_last: bool,
    renumbered: Callable[[int], Awaitable[TaskChunk]] | None = None,
) -> TaskChunk:
    """Write the tasks of some lines and advance the part past them, in one transaction.

    The last chunk makes the part done, unless the part has no task. ``renumbered`` encodes the same
    chunk from another first number. With it, the run is locked first: others that add tasks to the
    run wait, instead of overtaking this chunk. Returns the chunk as written. Raises Overtaken.
    """

    async def write(connection: RawConnection) -> TaskChunk:
        written = chunk
        async with connection.transaction():
            if renumbered is not None:
                rows = await connection.fetch(sql("ingest/lock_run"), snapshot.org, snapshot.run)
                if rows and rows[0]["tasks"] != chunk.first:
                    written = await renumbered(rows[0]["tasks"])
            await connection.copy_to_table(
                "jobs",
                source=_each(written.pieces),
                columns=task_copy.COLUMNS,
                format="binary",
            )
            kept = written.bad[: max(0, BAD_LINES_KEPT_MAX - snapshot.part_bad_lines)]
            moved = await connection.fetch(
                sql("ingest/advance"),
                snapshot.org,
                snapshot.run,
                snapshot.part,
                written.first,
                snapshot.part_offset,
                written.size,
                written.lines,
                len(written.bad),
                written.tasks,
                is_last,
                [bad.line for bad in kept],
                [bad.code for bad in kept],
                [bad.message for bad in kept],
            )
            if not moved:
                raise Overtaken
            crash_point("ingest.chunk_not_committed")
        crash_point("ingest.chunk_committed")
        return written

    return await db.run(_unless_overtaken(write))


async def _each(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def select_ended(
    db: Connection,
    org: str,
    run: UUID,
    state: State,
    error_codes: Sequence[str],
    first: int,
    tasks_max: int,
) -> list[int]:
    """The numbers of a run's next tasks that ended in ``state`` with one of the error codes."""
    rows = await db.fetch(
        sql("ingest/select_ended"),
        org,
        run,
        state.value,
        list(error_codes) or None,
        first,
        tasks_max,
    )
    return [row[0] for row in rows]


@dataclass(frozen=True, slots=True)
class RepeatedTask:
    """A task that a rerun repeats: the task to copy, its position in the batch, and the latest task
    of that position, which the copy replaces."""

    source: TaskPlace
    position: int
    replaced: TaskPlace


async def write_rerun_chunk(
    db: Connection,
    snapshot: IngestSnapshot,
    tasks: Sequence[RepeatedTask],
    next_offset: int,
    *,
    is_last: bool,
) -> int:
    """Copy these tasks of earlier runs into the new one. Returns how many still existed.

    Raises Overtaken and TooManyTasks.
    """
    if snapshot.run_tasks + len(tasks) > RUN_TASKS_MAX:
        raise TooManyTasks
    first = snapshot.run_tasks
    new = [UUID(bytes=task_id(snapshot.run, first + at)) for at in range(len(tasks))]

    async def write(connection: RawConnection) -> int:
        async with connection.transaction():
            rows = await connection.fetch(
                sql("ingest/rerun_chunk"),
                snapshot.org,
                snapshot.run,
                snapshot.part,
                snapshot.run_tasks,
                snapshot.part_offset,
                next_offset,
                is_last,
                [task.source.uuid for task in tasks],
                new,
                run_queue_key(snapshot.run),
                NOTIFIES_FAILURES if snapshot.notifies_failures else None,
                [task.position for task in tasks],
                [None if task.replaced == task.source else task.replaced.uuid for task in tasks],
            )
            if not rows:
                raise Overtaken
            crash_point("rerun.chunk_not_committed")
        crash_point("rerun.chunk_committed")
        written: int = rows[0][0]
        return written

    return await db.run(_unless_overtaken(write))


async def latch(connection: Connection | RawConnection, org: str, run: UUID) -> bool:
    """Latch a run that is closed and fully ingested, so that it can complete. Returns whether it
    latched it."""
    return bool(await connection.fetch(sql("ingest/latch"), org, run))


async def queue_next(db: Connection, org: str, run: UUID) -> bool:
    """Queue the job of the run's next part, if it waits because others came first. Returns whether
    it did."""
    return bool(await db.fetch(sql("ingest/queue_next"), org, run))


async def latch_missed(db: Connection, runs_max: int) -> list[UUID]:
    """Latch the runs whose latch was missed. Returns their batches."""
    rows = await db.fetch(sql("ingest/latch_missed"), runs_max)
    return [row["batch_id"] for row in rows]


async def fail_part(
    db: Connection, org: str, part: UUID, code: str, message: str, job: UUID | None = None
) -> bool:
    """Fail a part, which then waits for a redrive. Returns whether the part was pending.

    With ``job``, only if the part still belongs to that job.
    """
    message = message[:ERROR_MESSAGE_CHARACTERS_MAX]
    return bool(await db.fetch(sql("ingest/fail_part"), org, part, code, message, job))


async def lost_parts(db: Connection, parts_max: int) -> list[LostPart]:
    """Pending parts without a job that ingests them."""
    rows = await db.fetch(sql("ingest/lost"), parts_max)
    return [_lost(row) for row in rows]


async def assign_job(db: Connection, lost: LostPart, job: NewJob) -> bool:
    """Create another job for a part that lost its own. Returns whether it still needed one."""

    async def assign(connection: RawConnection) -> bool:
        async with connection.transaction():
            found = await connection.fetch(
                sql("ingest/assign_job"), lost.org, lost.part, lost.ingest_job, job.uuid
            )
            if found:
                await connection.fetch(core_sql("jobs/submit"), *columns([job]))
            return bool(found)

    return await db.run(assign)


async def redrive(
    db: Connection, org: str, part: UUID, owner: str | None, job: NewJob
) -> FailedPart | None:
    """Retry the ingest of a failed part with this job. None if there is no such part."""

    async def change(connection: RawConnection) -> FailedPart | None:
        async with connection.transaction():
            runs = await connection.fetch(sql("ingest/lock_failed"), org, part, owner, job.uuid)
            if not runs:
                return None
            rows = await connection.fetch(sql("ingest/redrive"), org, part, runs[0]["id"], job.uuid)
            if not rows:
                return None
            await connection.fetch(core_sql("jobs/submit"), *columns([job]))
            return FailedPart(*rows[0])

    return await db.run(change)


async def dead_letters(
    db: Connection, org: str, *, owner: str | None, after: UUID | None, limit: int
) -> list[FailedPart]:
    """Parts whose ingest failed, newest first, older than ``after``."""
    rows = await db.fetch(sql("ingest/dead_letters"), org, owner, after or newest_possible(), limit)
    return [FailedPart(*row) for row in rows]


async def bad_lines(
    db: Connection, org: str, run: UUID, after: tuple[int, int], limit: int
) -> list[tuple[int, BadLine]]:
    """Invalid lines, each with the position of its list, after this position and line."""
    rows = await db.fetch(sql("ingest/bad_lines"), org, run, *after, limit)
    return [(position, BadLine(*bad)) for position, *bad in rows]


def _unless_overtaken(
    write: Callable[[RawConnection], Awaitable[Result]],
) -> Callable[[RawConnection], Awaitable[Result]]:
    """Raise Overtaken if another process wrote the same tasks, or both wait for each other."""

    async def attempt(connection: RawConnection) -> Result:
        try:
            return await write(connection)
        except (asyncpg.UniqueViolationError, asyncpg.DeadlockDetectedError) as error:
            raise Overtaken from error

    return attempt


def _lost(row: asyncpg.Record) -> LostPart:
    org, part, batch, job, redrives, request_id, state, code, message = row
    return LostPart(
        org, part, batch, job, redrives, request_id, state and State(state), code, message
    )


async def known_lists(db: Connection, lists: Sequence[tuple[UUID, str]]) -> set[str]:
    """The list keys of these (part id, list key) that a part still needs."""
    rows = await db.fetch(
        sql("ingest/known_lists"), [owner for owner, _ in lists], [key for _, key in lists]
    )
    return {row[0] for row in rows}
