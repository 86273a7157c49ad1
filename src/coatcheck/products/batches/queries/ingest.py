"""Taking lists of tasks in. One method a file of ``sql/batch_ingest``.

A chunk is numbered from what the run had when its order was read, and moves the run on from there
in the transaction that writes it. So a chunk is written once, however many are at it: whoever comes
second meets its ids or finds the run moved on, is told so (``Overtaken``), and reads the order
again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

import asyncpg

from coatcheck.core.queries.jobs import columns
from coatcheck.core.sql import sql as core_sql
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.domain.ids import newest_possible
from coatcheck.domain.job import NewJob
from coatcheck.domain.limits import BAD_LINES_KEPT_MAX, ERROR_MESSAGE_CHARACTERS_MAX, RUN_TASKS_MAX
from coatcheck.domain.runs import run_queue_key
from coatcheck.domain.states import State
from coatcheck.products.batches.model import BadLine, FailedPart, IngestOrder, TaskPlace, task_id
from coatcheck.products.batches.queries import task_copy
from coatcheck.products.batches.queries.task_copy import TELLS_FAILURES, TaskChunk, TooManyTasks
from coatcheck.products.batches.sql import sql

Result = TypeVar("Result")


class Overtaken(Exception):
    """Somebody else has moved the part on, or ended it: its order is to be read again."""


@dataclass(frozen=True, slots=True)
class LostPart:
    """A part that waits while no job is at it; the state and error of the one that was."""

    org: str
    part: UUID
    batch: UUID
    ingest_job: UUID | None
    redrives: int
    request_id: str | None
    job_state: State | None
    error_code: str | None
    error_message: str | None


async def order_of(line: Connection, org: str, part: UUID) -> IngestOrder | None:
    """All that whoever takes a part in has to know; None if it is gone."""
    rows = await line.fetch(sql("ingest/order"), org, part)
    return IngestOrder(*rows[0]) if rows else None


async def write_chunk(
    line: Connection,
    order: IngestOrder,
    chunk: TaskChunk,
    *,
    is_last: bool,
    renumbered: Callable[[int], Awaitable[TaskChunk]] | None = None,
) -> TaskChunk:
    """Write the tasks of some lines, and move the part on past them: both or neither.

    The last chunk makes the part done, unless it has no task at all. With ``renumbered``, which
    gives the same chunk from another number on, whoever else adds tasks to the run waits until this
    is written, instead of overtaking it. The chunk as it was written. Raises Overtaken.
    """

    async def write(connection: RawConnection) -> TaskChunk:
        written = chunk
        async with connection.transaction():
            if renumbered is not None:
                rows = await connection.fetch(sql("ingest/lock_run"), order.org, order.run)
                if rows and rows[0]["tasks"] != chunk.first:
                    written = await renumbered(rows[0]["tasks"])
            await connection.copy_to_table(
                "jobs",
                source=_each(written.pieces),
                columns=task_copy.COLUMNS,
                format="binary",
            )
            told = written.bad[: max(0, BAD_LINES_KEPT_MAX - order.part_bad_lines)]
            moved = await connection.fetch(
                sql("ingest/advance"),
                order.org,
                order.run,
                order.part,
                written.first,
                order.part_offset,
                written.size,
                written.lines,
                len(written.bad),
                written.tasks,
                is_last,
                [bad.line for bad in told],
                [bad.code for bad in told],
                [bad.message for bad in told],
            )
            if not moved:
                raise Overtaken
            crash_point("ingest.chunk_not_committed")
        crash_point("ingest.chunk_committed")
        return written

    return await line.run(_unless_overtaken(write))


async def _each(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def select_ended(
    line: Connection,
    org: str,
    run: UUID,
    state: State,
    error_codes: Sequence[str],
    first: int,
    tasks_max: int,
) -> list[int]:
    """The numbers of the next tasks of a run that ended in this way."""
    rows = await line.fetch(
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
class Repeated:
    """A task that a rerun takes in again: where it is taken from, its position in the batch, and
    where the latest task of that position is, which the new one takes the place of."""

    source: TaskPlace
    position: int
    replaced: TaskPlace


async def write_rerun_chunk(
    line: Connection,
    order: IngestOrder,
    tasks: Sequence[Repeated],
    next_offset: int,
    *,
    is_last: bool,
) -> int:
    """Take these tasks of runs before into the new one. How many were there.

    Raises Overtaken, and TooManyTasks.
    """
    if order.run_tasks + len(tasks) > RUN_TASKS_MAX:
        raise TooManyTasks
    first = order.run_tasks
    new = [UUID(bytes=task_id(order.run, first + at)) for at in range(len(tasks))]

    async def write(connection: RawConnection) -> int:
        async with connection.transaction():
            rows = await connection.fetch(
                sql("ingest/rerun_chunk"),
                order.org,
                order.run,
                order.part,
                order.run_tasks,
                order.part_offset,
                next_offset,
                is_last,
                [task.source.uuid for task in tasks],
                new,
                run_queue_key(order.run),
                TELLS_FAILURES if order.tells_failures else None,
                [task.position for task in tasks],
                [None if task.replaced == task.source else task.replaced.uuid for task in tasks],
            )
            if not rows:
                raise Overtaken
            crash_point("rerun.chunk_not_committed")
        crash_point("rerun.chunk_committed")
        written: int = rows[0][0]
        return written

    return await line.run(_unless_overtaken(write))


async def latch(connection: Connection | RawConnection, org: str, run: UUID) -> bool:
    """Let a run complete, once it takes no more and all there is was taken in. Whether it did."""
    return bool(await connection.fetch(sql("ingest/latch"), org, run))


async def call_next(line: Connection, org: str, run: UUID) -> bool:
    """Have the part that comes next taken in now, if its job found others before it. Whether."""
    return bool(await line.fetch(sql("ingest/call_next"), org, run))


async def latch_left(line: Connection, runs_max: int) -> list[UUID]:
    """Latch the runs whose latch was lost. Their batches."""
    rows = await line.fetch(sql("ingest/latch_left"), runs_max)
    return [row["batch_id"] for row in rows]


async def fail_part(
    line: Connection, org: str, part: UUID, code: str, message: str, job: UUID | None = None
) -> bool:
    """Leave a part to whoever redrives it. Whether it was waiting to be taken in.

    With ``job``: by that one, and not by another that it was given to since.
    """
    message = message[:ERROR_MESSAGE_CHARACTERS_MAX]
    return bool(await line.fetch(sql("ingest/fail_part"), org, part, code, message, job))


async def lost_parts(line: Connection, parts_max: int) -> list[LostPart]:
    """Parts that wait to be taken in while no job is at it."""
    rows = await line.fetch(sql("ingest/lost"), parts_max)
    return [_lost(row) for row in rows]


async def entrust(line: Connection, lost: LostPart, job: NewJob) -> bool:
    """Create another job for a part that lost its own. Whether the part still was without one."""

    async def hand_over(connection: RawConnection) -> bool:
        async with connection.transaction():
            found = await connection.fetch(
                sql("ingest/entrust"), lost.org, lost.part, lost.ingest_job, job.uuid
            )
            if found:
                await connection.fetch(core_sql("jobs/submit"), *columns([job]))
            return bool(found)

    return await line.run(hand_over)


async def redrive(
    line: Connection, org: str, part: UUID, owner: str | None, job: NewJob
) -> FailedPart | None:
    """Have a part that failed taken in after all, by this job. None if there is no such part."""

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

    return await line.run(change)


async def dead_letters(
    line: Connection, org: str, *, owner: str | None, after: UUID | None, limit: int
) -> list[FailedPart]:
    """Parts that could not be taken in, newest first, older than ``after``."""
    rows = await line.fetch(
        sql("ingest/dead_letters"), org, owner, after or newest_possible(), limit
    )
    return [FailedPart(*row) for row in rows]


async def bad_lines(
    line: Connection, org: str, run: UUID, after: tuple[int, int], limit: int
) -> list[tuple[int, BadLine]]:
    """Lines that are no tasks, each with its list's position, after this position and line."""
    rows = await line.fetch(sql("ingest/bad_lines"), org, run, *after, limit)
    return [(position, BadLine(*told)) for position, *told in rows]


def _unless_overtaken(
    write: Callable[[RawConnection], Awaitable[Result]],
) -> Callable[[RawConnection], Awaitable[Result]]:
    """Says Overtaken where a rival has written the same tasks, or both wait for each other."""

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


async def known_lists(line: Connection, lists: Sequence[tuple[UUID, str]]) -> set[str]:
    """Which of these (part id, list key) a part still needs."""
    rows = await line.fetch(
        sql("ingest/known_lists"), [owner for owner, _ in lists], [key for _, key in lists]
    )
    return {row[0] for row in rows}
