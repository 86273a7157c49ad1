"""Reading the tasks of a batch: a page at a time, or one by its id.

A page costs what it shows, wherever in a run it begins: in the order of their numbers, tasks are
found by ids that are computed; by status, they are one range of an index. Those that wait and those
that run are a moving target: a task that starts or ends between two pages may be on both or on
neither. Those that have ended stay where they are.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final
from uuid import UUID

import msgspec

from coatcheck.domain.batches import BatchView, RunView, TaskStatus, TaskView
from coatcheck.domain.errors import InvalidParameter, InvalidSubmission, JobNotFound
from coatcheck.domain.states import State
from coatcheck.encoding import encode
from coatcheck.store import batch_tasks as task_store
from coatcheck.store.batch_tasks import Failures, QueuePlace
from coatcheck.store.faults import retried
from coatcheck.store.line import Line

FAILURES_COUNTED_MAX: Final = 20_000
"""Of a run with more failed tasks than these, the first are counted by their codes."""
_CODES_MAX: Final = 50
_PAGE_ROWS_MAX: Final = 200
_ID_CHARACTERS: Final = 32
_HEXADECIMAL: Final = frozenset("0123456789abcdefABCDEF")
_ENDS: Final = {
    TaskStatus.SUCCEEDED: State.COMPLETED,
    TaskStatus.FAILED: State.FAILED,
    TaskStatus.CANCELLED: State.CANCELLED,
}

Number = Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]
TaskPage = tuple[Sequence[TaskView], str | None]
"""Tasks, and what the next page begins after; None on the last."""


class _AfterTask(msgspec.Struct, frozen=True, array_like=True, tag="n"):
    """After the task of a number."""

    index: Number


class _AfterPlace(msgspec.Struct, frozen=True, array_like=True, tag="q"):
    """After a place in the queue."""

    flow: str
    run_at: Annotated[datetime, msgspec.Meta(tz=True)]
    uuid: UUID


_Cursor = _AfterTask | _AfterPlace
_read_cursor: Final = msgspec.json.Decoder(_Cursor).decode
_START: Final = _AfterTask(-1)


class BatchTasks:
    """The tasks of batches that the caller has read, and so may see."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def page(
        self,
        view: BatchView,
        run: RunView,
        *,
        status: TaskStatus | None,
        after: str | None,
        limit: int,
    ) -> TaskPage:
        """Tasks of a run, those of ``status`` if it is given, and the cursor of the next page.

        ``after`` is the cursor that the page before gave. Without a status, and for those that have
        ended or run, they come by number; of those that wait, first the ones in the queue, in its
        order, then the ones that are to be tried again later. Long results are left out, and so are
        inputs: ``get`` has them.
        """
        if not 1 <= limit <= _PAGE_ROWS_MAX:
            raise InvalidSubmission(f"limit: must be 1 to {_PAGE_ROWS_MAX}")
        cursor = _decoded(after)
        if status is TaskStatus.PENDING:
            return await self._waiting(view, run, cursor, limit)
        if not isinstance(cursor, _AfterTask):
            raise _no_cursor()
        if status is None:
            return await self._by_number(view, run, cursor.index + 1, limit)
        found = await retried(
            lambda: (
                task_store.held(self._line, view.org, run.uuid, after=cursor.index, limit=limit + 1)
                if status is TaskStatus.RUNNING
                else task_store.ended(
                    self._line,
                    view.org,
                    run.uuid,
                    _ENDS[status],
                    after=cursor.index,
                    limit=limit + 1,
                )
            )
        )
        return _cut(found, limit)

    async def failures(self, view: BatchView, run: RunView) -> Failures:
        """The codes that tasks of a run failed with, the commonest first."""
        return await retried(
            lambda: task_store.failures(
                self._line,
                view.org,
                run.uuid,
                tasks_max=FAILURES_COUNTED_MAX,
                codes_max=_CODES_MAX,
            )
        )

    async def get(self, view: BatchView, task_id: str) -> TaskView:
        """A task of any run of the batch, with its result unless that is long, and its payload as
        ``input``. A long result is read with ``Engine.result``.

        Raises JobNotFound, the same for a foreign id as for an absent.
        """
        if len(task_id) != _ID_CHARACTERS or not _HEXADECIMAL.issuperset(task_id):
            raise JobNotFound("there is no such task")
        uuid = UUID(task_id)
        found = await retried(lambda: task_store.get(self._line, view.org, view.uuid, uuid))
        if found is None:
            raise JobNotFound("there is no such task")
        return found

    async def _by_number(self, view: BatchView, run: RunView, first: int, limit: int) -> TaskPage:
        there = min(limit, run.counts.total - first)
        if there <= 0:
            return [], None
        found = await retried(
            lambda: task_store.by_index(self._line, view.org, run.uuid, first, there)
        )
        more = first + there < run.counts.total
        return found, _encoded(_AfterTask(first + there - 1)) if more else None

    async def _waiting(
        self, view: BatchView, run: RunView, cursor: _Cursor, limit: int
    ) -> TaskPage:
        in_queue: Sequence[tuple[TaskView, QueuePlace]] = []
        if cursor == _START or isinstance(cursor, _AfterPlace):
            place = (
                QueuePlace(cursor.flow, cursor.run_at, cursor.uuid)
                if isinstance(cursor, _AfterPlace)
                else None
            )
            in_queue = await retried(
                lambda: task_store.queued(
                    self._line, view.org, view.uuid, run.uuid, after=place, limit=limit + 1
                )
            )
            if len(in_queue) > limit:
                _, last = in_queue[limit - 1]
                return [task for task, _ in in_queue[:limit]], _encoded(_AfterPlace(*last))
        after = cursor.index if isinstance(cursor, _AfterTask) else _START.index
        room = limit - len(in_queue)
        later = await retried(
            lambda: task_store.postponed(
                self._line, view.org, run.uuid, after=after, limit=room + 1
            )
        )
        page = [task for task, _ in in_queue]
        if len(later) <= room:
            return page + later, None
        if room:
            return page + later[:room], _encoded(_AfterTask(later[room - 1].index))
        _, last = in_queue[-1]  # the page is full: what waits for later begins on the next
        return page, _encoded(_AfterPlace(*last))


def _cut(found: Sequence[TaskView], limit: int) -> TaskPage:
    """A page of what was asked for with one more row than it has."""
    if len(found) <= limit:
        return found, None
    return found[:limit], _encoded(_AfterTask(found[limit - 1].index))


def _encoded(cursor: _Cursor) -> str:
    return base64.urlsafe_b64encode(encode(cursor)).decode().rstrip("=")


def _decoded(after: str | None) -> _Cursor:
    if after is None:
        return _START
    try:
        text = base64.b64decode(after + "=" * (-len(after) % 4), altchars=b"-_", validate=True)
        cursor: _Cursor = _read_cursor(text)
        if isinstance(cursor, _AfterPlace):
            cursor.run_at.astimezone(UTC)  # near the ends of the calendar there is no such moment
    except (binascii.Error, ValueError, OverflowError) as error:  # msgspec's are ValueErrors
        raise _no_cursor() from error
    if isinstance(cursor, _AfterPlace) and "\0" in cursor.flow:
        raise _no_cursor()
    return cursor


def _no_cursor() -> InvalidParameter:
    return InvalidParameter("cursor", "must be what a page of this list was answered with")
