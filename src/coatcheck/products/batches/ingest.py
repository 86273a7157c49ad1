"""Takes the tasks of a list in, chunk by chunk, from wherever it was left off.

Nothing is remembered between chunks but what is in the database: whoever takes over, after a crash
or beside a holder that lost its lease, reads the order and goes on (``queries/ingest.py``).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from coatcheck.blobs import BlobContainer
from coatcheck.core.queries import jobs as job_store
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection
from coatcheck.db.notifications import CHANGED, READY, Notifier
from coatcheck.domain.errors import (
    BlobStoreUnavailable,
    DatabaseUnavailable,
    FailJob,
    OutcomeUnknown,
    RetryLater,
    TargetUnreachable,
)
from coatcheck.domain.ids import to_text
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX, RUN_TASKS_MAX
from coatcheck.products.batches import rerun, task_lists
from coatcheck.products.batches.lines import Block, RateKey, parse, reading_ahead, too_long
from coatcheck.products.batches.model import INGEST_ENDPOINT, IngestOrder
from coatcheck.products.batches.queries import ingest
from coatcheck.products.batches.queries.ingest import Overtaken
from coatcheck.products.batches.queries.task_copy import TaskBlock, TaskChunk, TooManyTasks, encode
from coatcheck.products.batches.task_lists import ListUnusable
from coatcheck.telemetry import metrics
from coatcheck.telemetry.job_stats import job_stats_of

_log = logging.getLogger(__name__)
_AWAY_SECONDS: Final = 1.0
"""How long to wait before looking whether PostgreSQL is back."""
_FULL_SECONDS: Final = 1.0
"""How long to wait before looking whether an organisation's backlog has room again."""

_STOPPING_SECONDS: Final = 1.0
"""How long to wait before looking whether a run that was given up has ended."""


class IngestRequest(msgspec.Struct, frozen=True):
    """Which part of a batch is to be taken in."""

    org: str
    part: UUID


class IngestReport(msgspec.Struct, frozen=True):
    """What an ingest job ends with. Nobody but an operator reads it."""

    state: str
    lines: int = 0
    tasks: int = 0


class Ingester:
    """Takes one part in. ``line`` is its own: a chunk has it for as long as it is being written."""

    def __init__(self, line: Connection, blobs: BlobContainer, notifier: Notifier) -> None:
        self._line = line
        self._blobs = blobs
        self._notifier = notifier
        self._job_stats = job_stats_of(line.database_url)
        self._was_overtaken = False
        """Then chunks lock the run: others may add tasks to it faster than a chunk is written."""

    async def take_in(self, request: IngestRequest) -> IngestReport:
        """Take a part in to its end. Raises what should become of the job that does so."""
        try:
            return await self._go_on(request)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            raise TargetUnreachable("PostgreSQL is away", after=_AWAY_SECONDS) from error
        except BlobStoreUnavailable as error:
            raise RetryLater(
                "the blob store could not be read", code="blob_store_unavailable"
            ) from error

    async def _go_on(self, request: IngestRequest) -> IngestReport:
        while True:
            order = await ingest.order_of(self._line, request.org, request.part)
            if order is None:
                return IngestReport("gone")
            if order.cancelled:
                return IngestReport("cancelled", order.part_lines, order.part_tasks)
            if order.state != "pending":
                break
            if not order.is_next:
                # Less and less often: whoever takes in the one before it calls it.
                raise TargetUnreachable("the lists before it come first")
            if order.waits_for_a_run:
                # It was given up for this one: what it holds is told to stop, and counts till then.
                raise TargetUnreachable("the run before it has not ended", after=_STOPPING_SECONDS)
            room = await self._room(order)
            try:
                if order.source == "rerun":
                    await self._rerun(order, room)
                else:
                    await self._read(order, room)
            except Overtaken:
                self._was_overtaken = True
                _log.info("the run was moved on meanwhile", extra=_about(order))
            except TooManyTasks:
                await self._fail(
                    order, "too_many_tasks", f"a run has at most {RUN_TASKS_MAX} tasks"
                )
            except ListUnusable as error:
                await self._fail(order, error.code, str(error))
        if order.state == "done":
            await self._finish(order)
        return IngestReport(order.state, order.part_lines, order.part_tasks)

    async def _room(self, order: IngestOrder) -> int | None:
        """How many tasks the organisation's backlog limit has room for; None if there is no limit.

        Raises TargetUnreachable if there is none: what was taken in waits and counts, and the rest
        of the list comes after it, however long that takes.
        """
        if order.backlog_max is None:
            return None
        waiting = await job_store.org_backlog(self._line, order.org, order.backlog_max)
        if waiting < order.backlog_max:
            return order.backlog_max - waiting
        metrics.record_bound_met("backlog")
        raise TargetUnreachable(
            f"the organisation has {order.backlog_max} jobs waiting, as many as it may have;"
            " the list is taken in further as they begin",
            after=_FULL_SECONDS,
        )

    async def _read(self, order: IngestOrder, room: int | None) -> None:
        """Take the list in: to its end, or one chunk that there is ``room`` for."""
        async with (
            aclosing(_encoded(self._blobs, order, room)) as source,
            reading_ahead(source) as chunks,
        ):
            chunk = await anext(chunks, None)
            if chunk is None:  # there is still an end to write
                nothing = await encode(order, order.run_tasks, ())
                await ingest.write_chunk(self._line, order, nothing, is_last=True)
            while chunk is not None:
                following = await anext(chunks, None)
                written = await ingest.write_chunk(
                    self._line,
                    order,
                    chunk.tasks,
                    is_last=following is None,
                    renumbered=chunk.renumbered if self._was_overtaken else None,
                )
                order = _after(order, written)
                self._job_stats.submitted({(order.org, order.lane): written.tasks})
                self._tell(order)
                chunk = following
                if room is not None and chunk is not None:
                    return
        if order.part_tasks == 0:
            raise _nothing_in(order)

    async def _rerun(self, order: IngestOrder, room: int | None) -> None:
        """Take tasks of runs before in: all of them, or one chunk that there is ``room`` for."""
        tasks = order.run_tasks
        async for moved_on in rerun.chunks(self._line, order, room):
            self._job_stats.submitted({(order.org, order.lane): moved_on.run_tasks - tasks})
            tasks = moved_on.run_tasks
            self._tell(moved_on)
            if room is not None:
                return

    async def _finish(self, order: IngestOrder) -> None:
        crash_point("ingest.before_latch")
        await ingest.latch(self._line, order.org, order.run)
        crash_point("ingest.latched")
        self._tell(order)
        await self._call_next(order)
        try:
            await task_lists.delete(self._blobs, order)
        except BlobStoreUnavailable as error:
            _log.warning("a list that was taken in is left to the sweeper: %s", error)

    async def _fail(self, order: IngestOrder, code: str, message: str) -> None:
        if not await ingest.fail_part(self._line, order.org, order.part, code, message):
            return  # it was ended meanwhile
        self._tell(order)
        await self._call_next(order)
        raise FailJob(message, code=code)

    async def _call_next(self, order: IngestOrder) -> None:
        """One list less stands before the others."""
        if await ingest.call_next(self._line, order.org, order.run):
            self._notifier.say(READY, [INGEST_ENDPOINT])

    def _tell(self, order: IngestOrder) -> None:
        self._notifier.say(READY, [order.endpoint])
        self._notifier.say(CHANGED, [order.batch.hex])


@dataclass(frozen=True, slots=True)
class _Encoded:
    """A chunk that is ready to be written, and how to number it otherwise."""

    tasks: TaskChunk
    renumbered: Callable[[int], Awaitable[TaskChunk]]


async def _encoded(
    blobs: BlobContainer, order: IngestOrder, tasks_max: int | None
) -> AsyncGenerator[_Encoded, None]:
    """What is left of a list, in chunks of at most ``tasks_max`` tasks. Each is read as if those
    before it were written."""
    rate_key = None if order.rate_key is None else RateKey(order.rate_key)

    async def encoded(order: IngestOrder, chunk: Sequence[Block], first: int) -> TaskChunk:
        return await encode(order, first, _tasks(order, chunk, rate_key))

    async with aclosing(task_lists.chunks(blobs, order, tasks_max)) as chunks:
        async for chunk in chunks:
            tasks = await encoded(order, chunk, order.run_tasks)
            yield _Encoded(tasks, partial(encoded, order, chunk))
            order = _after(order, tasks)


def _after(order: IngestOrder, written: TaskChunk) -> IngestOrder:
    """The order as it is once a chunk was written."""
    return replace(
        order,
        run_tasks=written.first + written.tasks,
        part_offset=order.part_offset + written.size,
        part_lines=order.part_lines + written.lines,
        part_bad_lines=order.part_bad_lines + len(written.bad),
        part_tasks=order.part_tasks + written.tasks,
    )


def _tasks(
    order: IngestOrder, chunk: Sequence[Block], rate_key: RateKey | None
) -> Iterator[TaskBlock]:
    """The tasks of a chunk, block by block."""
    bytes_max = PAYLOAD_BYTES_MAX - len(order.payload_prefix) - len(order.payload_suffix)
    line = order.part_lines + 1
    for block in chunk:
        if block.is_too_long:
            yield TaskBlock((), (), None, [too_long(line, bytes_max)], 1, block.size)
            line += 1
            continue
        inputs, custom_ids, bad, lines = parse(block.data, line, bytes_max)
        keys = None if rate_key is None else [rate_key.of(given) for given in inputs]
        yield TaskBlock(inputs, custom_ids, keys, bad, lines, block.size)
        line += lines


def _nothing_in(order: IngestOrder) -> ListUnusable:
    if order.part_bad_lines == 0:
        return ListUnusable("list_empty", "the list has no line that is not blank")
    return ListUnusable(
        "no_usable_line",
        f"no line of the list is a task: {order.part_bad_lines} of {order.part_lines} are bad,"
        " the others blank",
    )


def _about(order: IngestOrder) -> dict[str, str]:
    return {"batch_id": to_text(order.batch), "part_id": to_text(order.part)}
