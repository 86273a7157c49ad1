"""Ingests a list: writes its lines as tasks, chunk by chunk, and resumes where it stopped.

Between chunks, all state is in the database. A worker that takes over after a crash, or runs beside
one that lost its lease, reads a snapshot and continues (``ingest_repository.py``).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.pieces import delete_pieces, stream_pieces
from coatcheck.core.queries import jobs as job_store
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection
from coatcheck.db.notifications import CHANGED, READY, Notifier
from coatcheck.domain.errors import (
    BlobChanged,
    BlobStoreUnavailable,
    DatabaseUnavailable,
    FailJob,
    OutcomeUnknown,
    RetryLater,
    TargetUnreachable,
)
from coatcheck.domain.ids import to_text
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX, RUN_TASKS_MAX
from coatcheck.products.batches import ingest_repository as ingest
from coatcheck.products.batches import rerun
from coatcheck.products.batches.ingest_repository import (
    Overtaken,
    TaskBlock,
    TaskChunk,
    TooManyTasks,
    encode,
)
from coatcheck.products.batches.lines import (
    Block,
    LineSplitter,
    RateKey,
    parse,
    reading_ahead,
    too_long,
)
from coatcheck.products.batches.model import INGEST_ENDPOINT, BatchFailure, IngestSnapshot
from coatcheck.telemetry import metrics
from coatcheck.telemetry.job_stats import job_stats_of

_log = logging.getLogger(__name__)
CHUNK_LINES: Final = 20_000
CHUNK_BYTES: Final = 4 * 1024 * 1024
"""What one transaction writes at most, whichever is reached first."""
_DATABASE_RETRY_SECONDS: Final = 1.0
"""The delay before an ingest that lost PostgreSQL tries again."""
_BACKLOG_RETRY_SECONDS: Final = 1.0
"""The delay before an ingest that met the organisation's backlog limit tries again."""
_RUN_RETRY_SECONDS: Final = 1.0
"""The delay before a rerun tries again whose earlier run has not ended."""


class IngestRequest(msgspec.Struct, frozen=True):
    """The part of a batch to ingest."""

    org: str
    part: UUID


class IngestReport(msgspec.Struct, frozen=True):
    """The result of an ingest job. Only operators read it."""

    state: str
    lines: int = 0
    tasks: int = 0


class Ingester:
    """Ingests one part. ``db`` is for it alone: writing a chunk occupies the connection."""

    def __init__(self, db: Connection, blobs: BlobContainer, notifier: Notifier) -> None:
        self._db = db
        self._blobs = blobs
        self._notifier = notifier
        self._job_stats = job_stats_of(db.database_url)
        self._was_overtaken = False
        """If true, chunks lock the run first: others may add tasks to it faster than a chunk is
        written, and would overtake this one again and again."""

    async def ingest(self, request: IngestRequest) -> IngestReport:
        """Ingest a part to its end. Raises the outcome of the job if it cannot."""
        try:
            return await self._ingest_part(request)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            raise TargetUnreachable(
                "PostgreSQL is unavailable", after=_DATABASE_RETRY_SECONDS
            ) from error
        except BlobStoreUnavailable as error:
            raise RetryLater(
                "the blob store could not be read", code=BatchFailure.BLOB_STORE_UNAVAILABLE
            ) from error

    async def _ingest_part(self, request: IngestRequest) -> IngestReport:
        while True:
            snapshot = await ingest.read_snapshot(self._db, request.org, request.part)
            if snapshot is None:
                return IngestReport("gone")
            if snapshot.cancelled:
                return IngestReport("cancelled", snapshot.part_lines, snapshot.part_tasks)
            if snapshot.state != "pending":
                break
            if not snapshot.is_next:
                # The delay grows: the ingest of the list before it queues this job when it ends.
                raise TargetUnreachable("earlier lists of the run are ingested first")
            if snapshot.waits_for_a_run:
                # This run replaces that one. Its running tasks are being cancelled, and count until
                # they stop.
                raise TargetUnreachable("the run before it has not ended", after=_RUN_RETRY_SECONDS)
            room = await self._room(snapshot)
            try:
                if snapshot.source == "rerun":
                    await self._rerun(snapshot, room)
                else:
                    await self._read(snapshot, room)
            except Overtaken:
                self._was_overtaken = True
                _log.info("another process advanced the run", extra=_log_context(snapshot))
            except TooManyTasks:
                await self._fail(
                    snapshot,
                    BatchFailure.TOO_MANY_TASKS,
                    f"a run has at most {RUN_TASKS_MAX} tasks",
                )
            except ListUnusable as error:
                await self._fail(snapshot, error.code, str(error))
        if snapshot.state == "done":
            await self._finish(snapshot)
        return IngestReport(snapshot.state, snapshot.part_lines, snapshot.part_tasks)

    async def _room(self, snapshot: IngestSnapshot) -> int | None:
        """How many tasks the organisation's backlog limit has room for; None if there is no limit.

        Raises TargetUnreachable if there is no room. The tasks that were ingested wait and count;
        the rest of the list follows, however long that takes.
        """
        if snapshot.backlog_max is None:
            return None
        waiting = await job_store.org_backlog(self._db, snapshot.org, snapshot.backlog_max)
        if waiting < snapshot.backlog_max:
            return snapshot.backlog_max - waiting
        metrics.record_bound_met(job_store.BACKLOG)
        raise TargetUnreachable(
            f"the organisation is at its limit of {snapshot.backlog_max} waiting jobs;"
            " the ingest continues as they start",
            after=_BACKLOG_RETRY_SECONDS,
        )

    async def _read(self, snapshot: IngestSnapshot, room: int | None) -> None:
        """Ingest the list: to its end, or, with ``room``, one chunk of at most that many tasks."""
        async with (
            aclosing(_encoded(self._blobs, snapshot, room)) as source,
            aclosing(reading_ahead(source)) as chunks,
        ):
            chunk = await anext(chunks, None)
            if chunk is None:  # the end of the part must still be written
                nothing = await encode(snapshot, snapshot.run_tasks, ())
                await ingest.write_chunk(self._db, snapshot, nothing, is_last=True)
            while chunk is not None:
                following = await anext(chunks, None)
                written = await ingest.write_chunk(
                    self._db,
                    snapshot,
                    chunk.tasks,
                    is_last=following is None,
                    renumbered=chunk.renumbered if self._was_overtaken else None,
                )
                snapshot = _after(snapshot, written)
                self._job_stats.submitted({(snapshot.org, snapshot.lane): written.tasks})
                self._notify(snapshot)
                chunk = following
                if room is not None and chunk is not None:
                    return
        if snapshot.part_tasks == 0:
            raise _no_tasks(snapshot)

    async def _rerun(self, snapshot: IngestSnapshot, room: int | None) -> None:
        """Ingest tasks of earlier runs: all, or, with ``room``, one chunk of at most that many."""
        tasks = snapshot.run_tasks
        async for after in rerun.chunks(self._db, snapshot, room):
            self._job_stats.submitted({(snapshot.org, snapshot.lane): after.run_tasks - tasks})
            tasks = after.run_tasks
            self._notify(after)
            if room is not None:
                return

    async def _finish(self, snapshot: IngestSnapshot) -> None:
        crash_point("ingest.before_latch")
        await ingest.latch(self._db, snapshot.org, snapshot.run)
        crash_point("ingest.latched")
        self._notify(snapshot)
        await self._queue_next(snapshot)
        try:
            await _delete(self._blobs, snapshot)
        except BlobStoreUnavailable as error:
            _log.warning("could not delete an ingested list; the sweeper will: %s", error)

    async def _fail(self, snapshot: IngestSnapshot, code: str, message: str) -> None:
        if not await ingest.fail_part(self._db, snapshot.org, snapshot.part, code, message):
            return  # the part ended meanwhile
        self._notify(snapshot)
        await self._queue_next(snapshot)
        raise FailJob(message, code=code)

    async def _queue_next(self, snapshot: IngestSnapshot) -> None:
        """Queue the job of the run's next list, which waited for this one."""
        if await ingest.queue_next(self._db, snapshot.org, snapshot.run):
            self._notifier.notify(READY, [INGEST_ENDPOINT])

    def _notify(self, snapshot: IngestSnapshot) -> None:
        self._notifier.notify(READY, [snapshot.endpoint])
        self._notifier.notify(CHANGED, [snapshot.batch.hex])


@dataclass(frozen=True, slots=True)
class _Encoded:
    """A chunk that is ready to write, and a function that encodes it with other numbers."""

    tasks: TaskChunk
    renumbered: Callable[[int], Awaitable[TaskChunk]]


async def _encoded(
    blobs: BlobContainer, snapshot: IngestSnapshot, tasks_max: int | None
) -> AsyncGenerator[_Encoded, None]:
    """The rest of a list, in chunks of at most ``tasks_max`` tasks. Each is numbered as if the
    chunks before it were written."""
    rate_key = None if snapshot.rate_key is None else RateKey(snapshot.rate_key)

    async def encoded(snapshot: IngestSnapshot, chunk: Sequence[Block], first: int) -> TaskChunk:
        return await encode(snapshot, first, _tasks(snapshot, chunk, rate_key))

    async with aclosing(list_chunks(blobs, snapshot, tasks_max)) as chunks:
        async for chunk in chunks:
            tasks = await encoded(snapshot, chunk, snapshot.run_tasks)
            yield _Encoded(tasks, partial(encoded, snapshot, chunk))
            snapshot = _after(snapshot, tasks)


def _after(snapshot: IngestSnapshot, written: TaskChunk) -> IngestSnapshot:
    """The snapshot after a chunk was written."""
    return replace(
        snapshot,
        run_tasks=written.first + written.tasks,
        part_offset=snapshot.part_offset + written.size,
        part_lines=snapshot.part_lines + written.lines,
        part_bad_lines=snapshot.part_bad_lines + len(written.bad),
        part_tasks=snapshot.part_tasks + written.tasks,
    )


def _tasks(
    snapshot: IngestSnapshot, chunk: Sequence[Block], rate_key: RateKey | None
) -> Iterator[TaskBlock]:
    """The tasks of a chunk, block by block."""
    bytes_max = PAYLOAD_BYTES_MAX - len(snapshot.payload_prefix) - len(snapshot.payload_suffix)
    line = snapshot.part_lines + 1
    for block in chunk:
        if block.is_too_long:
            yield TaskBlock((), (), None, [too_long(line, bytes_max)], 1, block.size)
            line += 1
            continue
        inputs, custom_ids, bad, lines = parse(block.data, line, bytes_max)
        keys = None if rate_key is None else [rate_key.of(given) for given in inputs]
        yield TaskBlock(inputs, custom_ids, keys, bad, lines, block.size)
        line += lines


def _no_tasks(snapshot: IngestSnapshot) -> ListUnusable:
    if snapshot.part_bad_lines == 0:
        return ListUnusable(BatchFailure.LIST_EMPTY, "the list is empty, or has only blank lines")
    return ListUnusable(
        BatchFailure.NO_USABLE_LINE,
        f"no line of the list is a task: of {snapshot.part_lines} lines {snapshot.part_bad_lines}"
        " are invalid, the others blank",
    )


def _log_context(snapshot: IngestSnapshot) -> dict[str, str]:
    return {"batch_id": to_text(snapshot.batch), "part_id": to_text(snapshot.part)}


# The stored list


class ListUnusable(Exception):
    """A list cannot be ingested: it is missing or changed, or has no task. ``code`` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def list_chunks(
    blobs: BlobContainer, snapshot: IngestSnapshot, lines_max: int | None = None
) -> AsyncGenerator[Sequence[Block], None]:
    """The lines that were not ingested yet, in chunks of at most ``lines_max`` lines.

    Raises ListUnusable in place of the chunk that is affected. BlobStoreUnavailable means that the
    list may exist, but cannot be read now.
    """
    chunk: list[Block] = []
    lines = size = 0
    async for whole in _blocks(blobs, snapshot):
        for block in (whole,) if lines_max is None else _cut(whole, lines_max):
            if lines_max is not None and chunk and lines + _lines_of(block) > lines_max:
                yield chunk
                chunk = []
                lines = size = 0
            chunk.append(block)
            lines += _lines_of(block)
            size += len(block.data)
            if lines >= CHUNK_LINES or size >= CHUNK_BYTES:
                yield chunk
                chunk = []
                lines = size = 0
    if chunk:
        yield chunk


def _cut(block: Block, lines_max: int) -> Iterator[Block]:
    """Split a block into blocks of at most ``lines_max`` lines."""
    while _lines_of(block) > lines_max:
        end = -1
        for _ in range(lines_max):
            end = block.data.index(b"\n", end + 1)
        rest = block.data[end + 1 :]
        # A byte order mark counts in the size and is not in the data: it belongs to the first one.
        yield Block(block.data[: end + 1], block.size - len(rest))
        block = Block(rest, len(rest))
    yield block


def _lines_of(block: Block) -> int:
    if block.is_too_long:
        return 1
    return block.data.count(b"\n") + (not block.data.endswith(b"\n") and bool(block.data))


async def _delete(blobs: BlobContainer, snapshot: IngestSnapshot) -> None:
    """Delete an ingested list. A repeat is a no-op."""
    if snapshot.source_key is None:
        return
    if snapshot.source == "pieces":
        await delete_pieces(blobs, snapshot.source_key)
    else:
        await blobs.delete([snapshot.source_key])


async def _blocks(blobs: BlobContainer, snapshot: IngestSnapshot) -> AsyncIterator[Block]:
    splitter = LineSplitter(at_start=snapshot.part_offset == 0)
    read = snapshot.part_offset
    try:
        await _check_size(blobs, snapshot)
        async for piece in _stream(blobs, snapshot):
            read += len(piece)
            for block in splitter.feed(piece):
                yield block
    except FileNotFoundError as error:
        raise ListUnusable(BatchFailure.LIST_MISSING, "the uploaded list is missing") from error
    except BlobChanged as error:
        raise _changed() from error
    if snapshot.source_bytes is not None and read < snapshot.source_bytes:
        raise _truncated(read, snapshot.source_bytes)
    for block in splitter.end():
        yield block


def _stream(blobs: BlobContainer, snapshot: IngestSnapshot) -> AsyncIterator[bytes]:
    key = snapshot.source_key or ""
    if snapshot.source == "pieces":
        return stream_pieces(blobs, key, snapshot.source_pieces or 0, snapshot.part_offset)
    return blobs.stream(key, snapshot.part_offset, etag=snapshot.source_etag)


async def _check_size(blobs: BlobContainer, snapshot: IngestSnapshot) -> None:
    """Raise ListUnusable if an upload changed. Only the server writes pieces: they cannot."""
    if snapshot.source == "pieces" or snapshot.source_bytes is None:
        return
    found = await blobs.head(snapshot.source_key or "")
    size = found.size
    if size < snapshot.source_bytes:
        raise _truncated(size, snapshot.source_bytes)
    if size > snapshot.source_bytes or snapshot.source_etag not in (None, found.etag):
        raise _changed()


def _truncated(size: int, was: int) -> ListUnusable:
    return ListUnusable(
        BatchFailure.LIST_TRUNCATED, f"the uploaded list has only {size} of its {was} bytes"
    )


def _changed() -> ListUnusable:
    return ListUnusable(BatchFailure.LIST_CHANGED, "the uploaded list was replaced by another one")
