"""Reads and writes the parts of batches: their ingest, their dead letters, their invalid lines.

A chunk's tasks are numbered from the run's count in the snapshot, and the transaction that writes
them advances the run from that count. So a chunk is written once, however many workers write it:
the second one meets the same ids or finds the run advanced, gets ``Overtaken``, and reads a new
snapshot.

The rows of a run's tasks are encoded in PostgreSQL's binary COPY format, a chunk at a time. The
columns that all tasks of a run share are encoded once.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

import asyncpg

from coatcheck.core.queries import jobs, queue
from coatcheck.core.queries.jobs import NULL
from coatcheck.core.queries.queue import END, SIGNATURE, QueueName, copy_field
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.notifications import CHANGED, READY, Notifier
from coatcheck.db.queries import in_transaction
from coatcheck.domain.errors import InvalidParameter, NotFound
from coatcheck.domain.ids import InvalidId, from_text, newest_possible, run_queue_key, to_text
from coatcheck.domain.job import NewJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import BAD_LINES_KEPT_MAX, ERROR_MESSAGE_CHARACTERS_MAX, RUN_TASKS_MAX
from coatcheck.domain.listing import FIRST_PAGE, PageQuery
from coatcheck.domain.states import State
from coatcheck.products.batches.model import (
    INGEST_ENDPOINT,
    BadLine,
    BatchView,
    FailedPart,
    IngestSnapshot,
    RunView,
    TaskPlace,
    internal_job,
    task_id,
)
from coatcheck.products.batches.queries import sql

COLUMNS: Final = (
    "org_id",
    "id",
    "lane",
    "endpoint",
    "flow",
    "failures_max",
    "owner",
    "request_id",
    "run_id",
    "webhook",
    "custom_id",
    "task_index",
    "payload",
)
NOTIFIES_FAILURES: Final = 3
"""The value of ``jobs.webhook`` for a task whose failure is sent to its run's webhook."""

_ID_LENGTH: Final = struct.pack(">i", 16)
_index_and_length: Final = struct.Struct(">iii").pack
_unnamed: Final = struct.Struct(">iiii").pack
_BUCKETS: Final = 256
_ROW_PARTS: Final = 7
"""How many pieces the encoding of a task's row has. The second is its id."""
_KEYS_MAX: Final = 10_000
"""How many encoded queue keys are cached."""


class TaskBlock(NamedTuple):
    """Tasks of some lines of a list. ``keys`` is None if the run has no rate per key."""

    inputs: Sequence[bytes]
    custom_ids: Sequence[str | None]
    keys: Sequence[str] | None
    bad: Sequence[BadLine]
    lines: int
    size: int
    """The bytes of the lines in the list."""


@dataclass(slots=True)
class TaskChunk:
    """Tasks as a COPY stream, their ids by queue, and the lines of them. ``first`` is the first
    task's number."""

    first: int
    tasks: int = 0
    lines: int = 0
    size: int = 0
    bad: list[BadLine] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    queued: dict[QueueName, list[bytes]] = field(default_factory=dict)


class TooManyTasks(Exception):
    """The run would have more than RUN_TASKS_MAX tasks."""


async def encode(snapshot: IngestSnapshot, first: int, blocks: Iterable[TaskBlock]) -> TaskChunk:
    """Encode the tasks of some blocks, numbered from ``first``. Raises TooManyTasks.

    The rows are not in the order of their numbers, but roughly in that of their ids, which are
    practically random: rows that belong on the same page of an index follow each other, which
    halves the server's work. Other coroutines get a turn after each block.
    """
    before, between = _common(snapshot)
    prefix, suffix = snapshot.payload_prefix, snapshot.payload_suffix
    frame = len(prefix) + len(suffix)
    sha256 = hashlib.sha256
    id_text = f"{to_text(snapshot.run)}:".encode()
    encoded: dict[str, bytes] = {}
    plain = between(run_queue_key(snapshot.run))
    queue_keys = {plain: run_queue_key(snapshot.run)}
    buckets: list[list[bytes]] = [[] for _ in range(_BUCKETS)]
    chunk = TaskChunk(first)
    index = first
    for block in blocks:
        chunk.lines += block.lines
        chunk.size += block.size
        chunk.bad += block.bad
        chunk.tasks += len(block.inputs)
        if first + chunk.tasks > RUN_TASKS_MAX:
            raise TooManyTasks
        keys = block.keys
        for at, (given, custom_id) in enumerate(zip(block.inputs, block.custom_ids, strict=True)):
            # Inlined on purpose: this loop is most of the cost of an ingest.
            common = plain
            if keys is not None:
                key = keys[at]
                try:
                    common = encoded[key]
                except KeyError:
                    if len(encoded) >= _KEYS_MAX:
                        encoded.clear()
                    queue_key = run_queue_key(snapshot.run, key)
                    common = encoded[key] = between(queue_key)
                    queue_keys[common] = queue_key
            payload_size = len(given) + frame
            task = sha256(id_text + b"%d" % index).digest()
            buckets[task[0]] += (
                before,
                task[:16],
                common,
                _unnamed(-1, 4, index, payload_size)
                if custom_id is None
                else copy_field(custom_id.encode()) + _index_and_length(4, index, payload_size),
                prefix,
                given,
                suffix,
            )
            index += 1
        await asyncio.sleep(0)
    chunk.pieces = [SIGNATURE, *(b"".join(bucket) for bucket in buckets if bucket), END]
    chunk.queued = {
        QueueName(snapshot.org, snapshot.lane, snapshot.endpoint, queue_keys[common]): ids
        for common, ids in _ids_in_order(buckets).items()
    }
    return chunk


def _ids_in_order(buckets: Iterable[Sequence[bytes]]) -> dict[bytes, list[bytes]]:
    """The ids of tasks, in order, by the columns that they have in common with their queue's."""
    found: dict[bytes, list[bytes]] = {}
    for bucket in buckets:
        ids, commons = bucket[1::_ROW_PARTS], bucket[2::_ROW_PARTS]
        for task, common in sorted(zip(ids, commons, strict=True)):
            try:
                found[common].append(task)
            except KeyError:
                found[common] = [task]
    return found


def _common(snapshot: IngestSnapshot) -> tuple[bytes, Callable[[str], bytes]]:
    """The bytes before the id, the same in every row, and a function that gives the bytes between
    the id and the custom id for a queue key."""
    before = struct.pack(">h", len(COLUMNS)) + _text(snapshot.org) + _ID_LENGTH
    first = _text(snapshot.lane) + _text(snapshot.endpoint)
    last = b"".join(
        [
            copy_field(struct.pack(">h", snapshot.failures_max)),
            _text(snapshot.owner),
            NULL if snapshot.request_id is None else _text(snapshot.request_id),
            copy_field(snapshot.run.bytes),
            copy_field(struct.pack(">h", NOTIFIES_FAILURES))
            if snapshot.notifies_failures
            else NULL,
        ]
    )

    def between(queue_key: str) -> bytes:
        return first + _text(queue_key) + last

    return before, between


def _text(value: str) -> bytes:
    return copy_field(value.encode())


_PAGE_ROWS_MAX: Final = 200

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
    job_state: str | None
    error_code: str | None
    error_message: str | None


@dataclass(frozen=True, slots=True)
class RepeatedTask:
    """A task that a rerun repeats: the task to copy, its position in the batch, and the latest task
    of that position, which the copy replaces."""

    source: TaskPlace
    position: int
    replaced: TaskPlace


# The job that ingests a part


def ingest_job(org: str, part: UUID, request_id: str | None) -> NewJob:
    """The internal job that ingests a part. No caller can read it."""
    order = {"org": org, "part": part.hex}
    return internal_job(org, Lane.STANDARD, INGEST_ENDPOINT, {"order": order}, request_id)


async def submit_job(
    connection: RawConnection, org: str, part: UUID, request_id: str | None
) -> None:
    """Submit the job that ingests a part, within the caller's transaction."""
    job = ingest_job(org, part, request_id)
    await jobs.insert(connection, [job])
    await sql.fetch(connection, "ingest/set_job", org=job.org, part=part, job=job.uuid)


async def assign_job(db: Connection, lost: LostPart, job: NewJob) -> bool:
    """Create another job for a part that lost its own. Returns whether it still needed one."""

    async def assign(connection: RawConnection) -> bool:
        found = await sql.fetch(
            connection,
            "ingest/assign_job",
            org=lost.org,
            part=lost.part,
            old_job=lost.ingest_job,
            job=job.uuid,
        )
        if found:
            await jobs.insert(connection, [job])
        return bool(found)

    return await in_transaction(db, assign)


# Ingesting


async def read_snapshot(db: Connection, org: str, part: UUID) -> IngestSnapshot | None:
    """Read what the ingest of a part needs; None if the part does not exist any more."""
    row = await sql.first(db, "ingest/snapshot", org=org, part=part)
    return None if row is None else IngestSnapshot(*row)


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
                tasks = await sql.value(
                    connection, "ingest/lock_run", org=snapshot.org, run=snapshot.run
                )
                if tasks is not None and tasks != chunk.first:
                    written = await renumbered(tasks)
            await connection.copy_to_table(
                "jobs",
                source=_each(written.pieces),
                columns=COLUMNS,
                format="binary",
            )
            await queue.copy(connection, written.queued)
            kept = written.bad[: max(0, BAD_LINES_KEPT_MAX - snapshot.part_bad_lines)]
            if not await sql.fetch(
                connection,
                "ingest/advance",
                org=snapshot.org,
                run=snapshot.run,
                part=snapshot.part,
                run_tasks=written.first,
                part_offset=snapshot.part_offset,
                size=written.size,
                lines=written.lines,
                bad_lines=len(written.bad),
                tasks=written.tasks,
                is_last=is_last,
                bad_numbers=[bad.line for bad in kept],
                bad_codes=[bad.code for bad in kept],
                bad_messages=[bad.message for bad in kept],
            ):
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
    rows = await sql.fetch(
        db,
        "ingest/select_ended",
        org=org,
        run=run,
        state=state.value,
        error_codes=list(error_codes) or None,
        after=first - 1,
        limit=tasks_max,
    )
    return [row[0] for row in rows]


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
            written: int | None = await sql.value(
                connection,
                "ingest/rerun_chunk",
                org=snapshot.org,
                run=snapshot.run,
                part=snapshot.part,
                run_tasks=snapshot.run_tasks,
                part_offset=snapshot.part_offset,
                next_offset=next_offset,
                is_last=is_last,
                sources=[task.source.uuid for task in tasks],
                copies=new,
                queue_key=run_queue_key(snapshot.run),
                webhook=NOTIFIES_FAILURES if snapshot.notifies_failures else None,
                positions=[task.position for task in tasks],
                replaced=[
                    None if task.replaced == task.source else task.replaced.uuid for task in tasks
                ],
            )
            if written is None:
                raise Overtaken
            crash_point("rerun.chunk_not_committed")
        crash_point("rerun.chunk_committed")
        return written

    return await db.run(_unless_overtaken(write))


async def latch(connection: Connection | RawConnection, org: str, run: UUID) -> bool:
    """Latch a run that is closed and fully ingested, so that it can complete. Returns whether it
    latched it."""
    return bool(await sql.fetch(connection, "ingest/latch", org=org, run=run))


async def queue_next(db: Connection, org: str, run: UUID) -> bool:
    """Queue the job of the run's next part, if it waits because others came first. Returns whether
    it did."""
    return bool(await sql.fetch(db, "ingest/queue_next", org=org, run=run))


async def latch_missed(db: Connection, runs_max: int) -> list[UUID]:
    """Latch the runs whose latch was missed. Returns their batches."""
    rows = await sql.fetch(db, "ingest/latch_missed", runs_max=runs_max)
    return [row["batch_id"] for row in rows]


async def fail_part(
    db: Connection, org: str, part: UUID, code: str, message: str, job: UUID | None = None
) -> bool:
    """Fail a part, which then waits for a redrive. Returns whether the part was pending.

    With ``job``, only if the part still belongs to that job.
    """
    failed = await sql.fetch(
        db,
        "ingest/fail_part",
        org=org,
        part=part,
        code=code,
        message=message[:ERROR_MESSAGE_CHARACTERS_MAX],
        job=job,
    )
    return bool(failed)


async def lost_parts(db: Connection, parts_max: int) -> list[LostPart]:
    """Pending parts without a job that ingests them."""
    rows = await sql.fetch(db, "ingest/lost", parts_max=parts_max)
    return [LostPart(*row) for row in rows]


async def known_lists(db: Connection, lists: Sequence[tuple[UUID, str]]) -> set[str]:
    """The list keys of these (part id, list key) that a part still needs."""
    rows = await sql.fetch(
        db,
        "ingest/known_lists",
        parts=[owner for owner, _ in lists],
        keys=[key for _, key in lists],
    )
    return {row[0] for row in rows}


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


async def redrive(db: Connection, part: UUID, owner: str | None, job: NewJob) -> FailedPart:
    """Retry the ingest of a failed part with this job. Raises NotFound.

    Sent again after its response was lost, it returns the same part.
    """

    async def change(connection: RawConnection) -> FailedPart:
        run = await sql.value(
            connection, "ingest/lock_failed", org=job.org, part=part, owner=owner, job=job.uuid
        )
        row = await sql.first(
            connection, "ingest/redrive", org=job.org, part=part, run=run, job=job.uuid
        )
        if row is None:
            raise NotFound("there is no such dead letter")
        await jobs.insert(connection, [job])
        return FailedPart(*row)

    return await in_transaction(db, change)


class DeadLetterRepository:
    """Reads the parts whose ingest failed, retries it, and reads invalid lines."""

    def __init__(self, db: Connection, notifier: Notifier) -> None:
        self._db = db
        self._notifier = notifier

    async def page(
        self, org: str, asked: PageQuery = FIRST_PAGE, *, owner: str | None
    ) -> Sequence[FailedPart]:
        """A page of parts whose ingest failed; of one owner's batches, or of all (None)."""
        rows = await sql.fetch(
            self._db,
            "ingest/dead_letters",
            org=org,
            owner=owner,
            after=asked.after or newest_possible(),
            limit=asked.limit,
        )
        return [FailedPart(*row) for row in rows]

    async def redrive(
        self, org: str, letter_id: str, owner: str | None, *, request_id: str | None = None
    ) -> FailedPart:
        """Retry the ingest of a part, from where it stopped. Raises NotFound.

        ``owner`` must be the owner of its batch; None allows every owner.
        """
        try:
            part = from_text(letter_id)
        except InvalidId as error:
            raise NotFound("there is no such dead letter") from error
        letter = await redrive(self._db, part, owner, ingest_job(org, part, request_id))
        self._notifier.notify(READY, [INGEST_ENDPOINT])
        self._notifier.notify(CHANGED, [letter.batch.hex])
        return letter

    async def bad_lines(
        self, view: BatchView, run: RunView, *, after: str | None = None, limit: int = 50
    ) -> tuple[Sequence[BadLine], str | None]:
        """The invalid lines of a run's lists, in order, and the cursor of the next page.

        The first 1,000 of each list are stored. In a run with several lists, each counts its own
        lines.
        """
        _check_limit(limit)
        position, line = (0, 0) if after is None else _place(after)
        found = await sql.fetch(
            self._db,
            "ingest/bad_lines",
            org=view.org,
            run=run.uuid,
            after_position=position,
            after_line=line,
            limit=limit + 1,
        )
        page = found[:limit]
        following = f"{page[-1]['position']}.{page[-1]['line']}" if len(found) > limit else None
        return [BadLine(*bad) for _, *bad in page], following


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= _PAGE_ROWS_MAX:
        raise InvalidParameter("limit", f"must be 1 to {_PAGE_ROWS_MAX}")


def _place(cursor: str) -> tuple[int, int]:
    position, _, line = cursor.partition(".")
    digits = position.isascii() and position.isdigit() and line.isascii() and line.isdigit()
    if not digits or len(position) > 9 or len(line) > 18:
        raise InvalidParameter("cursor", "must be the `next` of a page of this list")
    return int(position), int(line)
