"""Reads the tasks of a batch: a page at a time, or one by its id.

The cost of a page depends on its length, not on where in a run it begins. In the order of their
numbers, tasks are found by ids that are computed. By status, they are one range of an index.
Pending and running tasks move: one that starts or ends between two pages may be on both or on
neither. Ended tasks stay where they are.

For a batch as a whole, a page has each task once, with its latest result. In the order of
positions, the newest run of each position is looked up. By status, the runs are scanned, newest
first, and tasks that a later run has repeated are skipped. The number of tasks that are scanned for
a page is limited, so a page may be short or empty although it is not the last.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final
from uuid import UUID

import msgspec

from coatcheck.db.connection import Connection
from coatcheck.db.errors import retried
from coatcheck.domain.errors import InvalidParameter, InvalidSubmission, JobNotFound
from coatcheck.domain.states import State
from coatcheck.encoding import encode
from coatcheck.products.batches.model import (
    BatchView,
    MirrorRun,
    RunView,
    TaskPlace,
    TaskStatus,
    TaskView,
    mirrored_after,
)
from coatcheck.products.batches.queries import positions as batch_positions
from coatcheck.products.batches.queries import tasks as task_store
from coatcheck.products.batches.queries.tasks import Failures, QueuePlace, RunPlace, ScannedTasks

FAILURES_COUNTED_MAX: Final = 20_000
"""How many failed tasks of a run are counted by error code: the first ones."""
SCANNED_MAX: Final = 4_000
"""For a batch as a whole: how many tasks are scanned for one page, and how many at a time."""
SCANNED_STEP: Final = 1_000
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
"""Tasks, and the cursor of the next page; None on the last page."""


class _AfterTask(msgspec.Struct, frozen=True, array_like=True, tag="n"):
    """A cursor after the task with this number."""

    index: Number


class _AfterPlace(msgspec.Struct, frozen=True, array_like=True, tag="q"):
    """A cursor after this place in the queue."""

    queue_key: str
    run_at: Annotated[datetime, msgspec.Meta(tz=True)]
    uuid: UUID


class _InRun(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """A cursor in a batch as a whole: after a place in this run; the earlier runs follow."""

    number: Number
    after: _AfterTask | _AfterPlace


_Cursor = _AfterTask | _AfterPlace | _InRun
_read_cursor: Final = msgspec.json.Decoder(_Cursor).decode
_START: Final = _AfterTask(-1)


class TaskRepository:
    """Reads tasks. Callers pass a batch that they have read, and so may see."""

    def __init__(self, db: Connection) -> None:
        self._db = db

    async def page(
        self,
        view: BatchView,
        run: RunView,
        *,
        status: TaskStatus | None,
        after: str | None,
        limit: int,
    ) -> TaskPage:
        """A page of a run's tasks, with the cursor of the next page; ``status`` filters them.

        ``after`` is the cursor of the previous page. Pending tasks come in the order of the queue,
        followed by those that wait for a retry; all others come by number. Pages leave out inputs,
        which ``get`` has, and long results.
        """
        if not 1 <= limit <= _PAGE_ROWS_MAX:
            raise InvalidSubmission(f"limit: must be 1 to {_PAGE_ROWS_MAX}")
        cursor = _decoded(after)
        if status is TaskStatus.PENDING and not isinstance(cursor, _InRun):
            return await self._pending(view, run, cursor, limit)
        if not isinstance(cursor, _AfterTask):
            raise _invalid_cursor()
        if status is None:
            return await self._by_number(view, run, cursor.index + 1, limit)
        found = await retried(
            lambda: (
                task_store.running(
                    self._db, view.org, run.uuid, after=cursor.index, limit=limit + 1
                )
                if status is TaskStatus.RUNNING
                else task_store.ended(
                    self._db,
                    view.org,
                    run.uuid,
                    _ENDS[status],
                    after=cursor.index,
                    limit=limit + 1,
                )
            )
        )
        return _cut(found, limit)

    async def page_of_all_runs(
        self, view: BatchView, *, status: TaskStatus | None, after: str | None, limit: int
    ) -> TaskPage:
        """A page of the tasks of a batch as a whole, each once, with its latest result; ``status``
        filters them. ``view`` has all runs.

        Without a status the tasks come by position. With one they come by run, newest first, and
        within a run in the order of ``page``. A page may be short although it is not the last.
        """
        if not 1 <= limit <= _PAGE_ROWS_MAX:
            raise InvalidSubmission(f"limit: must be 1 to {_PAGE_ROWS_MAX}")
        cursor = _decoded(after)
        if status is None:
            if not isinstance(cursor, _AfterTask):
                raise _invalid_cursor()
            return await self._by_position(view, cursor.index + 1, limit)
        if cursor == _START:
            cursor = _InRun(view.current.number, _START)
        if not isinstance(cursor, _InRun):
            raise _invalid_cursor()
        if status in _ENDS:
            if not isinstance(cursor.after, _AfterTask):
                raise _invalid_cursor()
            return await self._latest_ended(view, status, cursor.number, cursor.after.index, limit)
        for run in reversed(view.runs):
            if run.number > cursor.number or run.completed_at is not None:
                continue
            inside = _encoded(cursor.after) if run.number == cursor.number else None
            found, following = await self.page(view, run, status=status, after=inside, limit=limit)
            if following is not None:
                return found, _encoded(_InRun(run.number, _unwrapped(following)))
            if found:
                return found, _encoded(_InRun(run.number - 1, _START)) if run.number > 1 else None
        return [], None

    async def _by_position(self, view: BatchView, first: int, limit: int) -> TaskPage:
        total = view.whole.total
        end = min(first + limit, total)
        if first >= end:
            return [], None
        positions = range(first, end)
        places = await retried(
            lambda: batch_positions.latest(
                self._db,
                view.org,
                view.uuid,
                _mirrors(view),
                positions,
                view.current.number + 1,
            )
        )
        found = await retried(lambda: task_store.by_place(self._db, view.org, places, limit))
        return found, _encoded(_AfterTask(end - 1)) if end < total else None

    async def _latest_ended(
        self, view: BatchView, status: TaskStatus, number: int, after: int, limit: int
    ) -> TaskPage:
        places: list[tuple[int, TaskPlace]] = []
        left = SCANNED_MAX
        for run in reversed(view.runs):
            if run.number > number:
                continue
            index = after if run.number == number else _START.index
            if run.completed_at is not None and not _latest_of(run, status):
                continue  # later runs have repeated all of them
            while True:
                if not left:
                    here = _InRun(run.number, _AfterTask(index))
                    return await self._shown(view, places, limit), _encoded(here)
                scanned = await self._scan(view, run, status, index, min(left, SCANNED_STEP))
                left -= min(left, SCANNED_STEP) if scanned.more else 0
                places += [
                    (run.number, TaskPlace(run.uuid, each))
                    for each in scanned.latest
                    # A task that was ingested after the view was read: in the view, an earlier run
                    # still has its latest result.
                    if each < run.counts.total
                ]
                if len(places) > limit:
                    last_number, last = places[limit - 1]
                    here = _InRun(last_number, _AfterTask(last.number))
                    return await self._shown(view, places[:limit], limit), _encoded(here)
                if not scanned.more:
                    break
                index = scanned.last
        return await self._shown(view, places, limit), None

    async def _scan(
        self, view: BatchView, run: RunView, status: TaskStatus, after: int, scanned_max: int
    ) -> ScannedTasks:
        return await retried(
            lambda: task_store.latest_ended(
                self._db,
                view.org,
                _place(view, run),
                _ENDS[status],
                after=after,
                scanned_max=scanned_max,
            )
        )

    async def _shown(
        self, view: BatchView, places: Sequence[tuple[int, TaskPlace]], limit: int
    ) -> Sequence[TaskView]:
        if not places:
            return []
        page = [place for _, place in places]
        return await retried(lambda: task_store.by_place(self._db, view.org, page, limit))

    async def failures_of_all_runs(self, view: BatchView) -> Failures:
        """The error codes of a batch's failed tasks, by their latest results, with counts."""
        counts: Counter[str] = Counter()
        left = FAILURES_COUNTED_MAX
        for run in reversed(view.runs):
            if not left:
                break
            if run.completed_at is not None and not _latest_of(run, TaskStatus.FAILED):
                continue
            by_code, scanned = await retried(
                partial(
                    task_store.latest_failures,
                    self._db,
                    view.org,
                    _place(view, run),
                    scanned_max=left,
                )
            )
            left -= scanned
            counts.update(by_code)
        commonest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return Failures(commonest[:_CODES_MAX], counts.total())

    async def failures(self, view: BatchView, run: RunView) -> Failures:
        """The error codes of a run's failed tasks, most frequent first, with counts."""
        return await retried(
            lambda: task_store.failures(
                self._db,
                view.org,
                run.uuid,
                tasks_max=FAILURES_COUNTED_MAX,
                codes_max=_CODES_MAX,
            )
        )

    async def get(self, view: BatchView, task_id: str) -> TaskView:
        """Read a task of any run of the batch, with its payload as ``input``, and its result unless
        that is long. ``Engine.result`` reads long results.

        Raises JobNotFound; another organisation's id gets the same error as an id that does not
        exist.
        """
        if len(task_id) != _ID_CHARACTERS or not _HEXADECIMAL.issuperset(task_id):
            raise JobNotFound("there is no such task")
        uuid = UUID(task_id)
        found = await retried(lambda: task_store.get(self._db, view.org, view.uuid, uuid))
        if found is None:
            raise JobNotFound("there is no such task")
        return found

    async def _by_number(self, view: BatchView, run: RunView, first: int, limit: int) -> TaskPage:
        there = min(limit, run.counts.total - first)
        if there <= 0:
            return [], None
        found = await retried(
            lambda: task_store.by_index(self._db, view.org, run.uuid, first, there)
        )
        more = first + there < run.counts.total
        return found, _encoded(_AfterTask(first + there - 1)) if more else None

    async def _pending(
        self, view: BatchView, run: RunView, cursor: _AfterTask | _AfterPlace, limit: int
    ) -> TaskPage:
        in_queue: Sequence[tuple[TaskView, QueuePlace]] = []
        if cursor == _START or isinstance(cursor, _AfterPlace):
            place = (
                QueuePlace(cursor.queue_key, cursor.run_at, cursor.uuid)
                if isinstance(cursor, _AfterPlace)
                else None
            )
            in_queue = await retried(
                lambda: task_store.queued(
                    self._db, view.org, view.uuid, run.uuid, after=place, limit=limit + 1
                )
            )
            if len(in_queue) > limit:
                _, last = in_queue[limit - 1]
                return [task for task, _ in in_queue[:limit]], _encoded(_AfterPlace(*last))
        after = cursor.index if isinstance(cursor, _AfterTask) else _START.index
        room = limit - len(in_queue)
        later = await retried(
            lambda: task_store.scheduled(self._db, view.org, run.uuid, after=after, limit=room + 1)
        )
        page = [task for task, _ in in_queue]
        if len(later) <= room:
            return page + later, None
        if room:
            return page + later[:room], _encoded(_AfterTask(later[room - 1].index))
        _, last = in_queue[-1]  # the page is full: tasks that wait for a retry start on the next
        return page, _encoded(_AfterPlace(*last))


def _mirrors(view: BatchView) -> list[MirrorRun]:
    return [MirrorRun(run.number, run.uuid, run.mirrored, run.counts.total) for run in view.runs]


def _place(view: BatchView, run: RunView) -> RunPlace:
    later = mirrored_after(_mirrors(view), run.number)
    return RunPlace(view.uuid, run.uuid, run.number, later, view.current.number + 1)


def _latest_of(run: RunView, status: TaskStatus) -> int:
    latest = run.latest
    return {
        TaskStatus.SUCCEEDED: latest.succeeded,
        TaskStatus.FAILED: latest.failed,
        TaskStatus.CANCELLED: latest.cancelled,
    }[status]


def _unwrapped(following: str) -> _AfterTask | _AfterPlace:
    cursor = _decoded(following)
    assert not isinstance(cursor, _InRun), "a page of one run never has this cursor"
    return cursor


def _cut(found: Sequence[TaskView], limit: int) -> TaskPage:
    """A page out of ``found``, which was read with one row more to see whether another follows."""
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
        place = cursor.after if isinstance(cursor, _InRun) else cursor
        if isinstance(place, _AfterPlace):
            place.run_at.astimezone(UTC)  # overflows near the ends of the calendar
    except (binascii.Error, ValueError, OverflowError) as error:  # msgspec's are ValueErrors
        raise _invalid_cursor() from error
    if isinstance(place, _AfterPlace) and "\0" in place.queue_key:
        raise _invalid_cursor()
    return cursor


def _invalid_cursor() -> InvalidParameter:
    return InvalidParameter("cursor", "must be the `next` of a page of this list")
