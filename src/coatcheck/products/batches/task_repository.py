"""Reads the tasks of batches: a page at a time, one by its id, or the latest of a position.

The cost of a page depends on its length, not on where in a run it begins. In the order of their
numbers, tasks are found by ids that are computed. By status, they are one range of an index.
Pending and running tasks move: one that starts or ends between two pages may be on both or on
neither. Ended tasks stay where they are.

For a batch as a whole, a page has each task once, with its latest result. In the order of
positions, the newest run of each position is looked up. By status, the runs are scanned, newest
first, and tasks that a later run has repeated are skipped. The number of tasks that are scanned for
a page is limited, so a page may be short or empty although it is not the last.

A task keeps its position in the batch through all reruns (``schema/0001_batches.sql``). The latest
task of a position is in the newest run that has the position: a run that mirrors it, where the
task's number is its position, or a run that a row of ``batch_positions`` names.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from coatcheck.db.connection import Connection, RawConnection
from coatcheck.domain.errors import InvalidParameter, InvalidSubmission, JobNotFound
from coatcheck.domain.ids import run_queue_key
from coatcheck.domain.limits import RESULT_INLINE_BYTES_MAX, page_result_bytes_max
from coatcheck.domain.states import State
from coatcheck.encoding import encode
from coatcheck.products.batches.model import (
    END_STATES,
    BatchView,
    EarlierRun,
    RunPlace,
    RunView,
    TaskPlace,
    TaskStatus,
    TaskView,
)
from coatcheck.products.batches.queries import sql

FAILURES_COUNTED_MAX: Final = 20_000
"""How many failed tasks of a run are counted by error code: the first ones."""
SCANNED_MAX: Final = 4_000
"""For a batch as a whole: how many tasks are scanned for one page, and how many at a time."""
SCANNED_STEP: Final = 1_000
_CODES_MAX: Final = 50
_PAGE_ROWS_MAX: Final = 200
_ID_CHARACTERS: Final = 32
_HEXADECIMAL: Final = frozenset("0123456789abcdefABCDEF")
Number = Annotated[int, msgspec.Meta(ge=-1, lt=2**31)]
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)

TaskPage = tuple[Sequence[TaskView], str | None]
"""Tasks, and the cursor of the next page; None on the last page."""


class Failures(NamedTuple):
    """Counts of failed tasks by error code, most frequent first, and how many were counted."""

    by_code: Sequence[tuple[str, int]]
    counted: int


class ScannedTasks(NamedTuple):
    """Scanned tasks: the numbers of those that are the latest of their position, the number of the
    last one scanned, and whether there may be more."""

    latest: Sequence[int]
    last: int
    more: bool


class _AfterTask(msgspec.Struct, frozen=True, array_like=True, tag="n"):
    """A cursor after the task with this number."""

    index: Number


class _AfterPlace(msgspec.Struct, frozen=True, array_like=True, tag="q"):
    """A cursor after this place in the queue: a task in a row of it."""

    queue_key: str
    run_at: Annotated[datetime, msgspec.Meta(tz=True)]
    row: UUID
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
        arguments = {"org": view.org, "run": run.uuid, "after": cursor.index}
        if status is TaskStatus.RUNNING:
            found = await self._views("tasks/running", limit + 1, **arguments)
        else:
            state = END_STATES[status].value
            found = await self._views("tasks/ended", limit + 1, **arguments, state=state)
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
        if status in END_STATES:
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
        places = await latest_of_positions(
            self._db,
            view.org,
            view.uuid,
            view.runs,
            range(first, end),
            view.current.number + 1,
        )
        found = await self._at(view, places, limit)
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
                scanned = await latest_ended(
                    self._db,
                    view.org,
                    _place(view, run),
                    END_STATES[status],
                    after=index,
                    scanned_max=min(left, SCANNED_STEP),
                )
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

    async def _shown(
        self, view: BatchView, places: Sequence[tuple[int, TaskPlace]], limit: int
    ) -> Sequence[TaskView]:
        return await self._at(view, [place for _, place in places], limit) if places else []

    async def failures_of_all_runs(self, view: BatchView) -> Failures:
        """The error codes of a batch's failed tasks, by their latest results, with counts."""
        counts: Counter[str] = Counter()
        left = FAILURES_COUNTED_MAX
        for run in reversed(view.runs):
            if not left:
                break
            if run.completed_at is not None and not _latest_of(run, TaskStatus.FAILED):
                continue
            rows = await sql.fetch(
                self._db,
                "tasks/latest_failures",
                org=view.org,
                **_place(view, run)._asdict(),
                state=State.FAILED.value,
                after=_START.index,
                limit=left,
            )
            left -= sum(row["seen"] for row in rows)
            counts.update({row["code"]: row["tasks"] for row in rows if row["tasks"]})
        commonest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return Failures(commonest[:_CODES_MAX], counts.total())

    async def failures(self, view: BatchView, run: RunView) -> Failures:
        """The error codes of a run's failed tasks, most frequent first, with counts."""
        rows = await sql.fetch(
            self._db,
            "tasks/failures",
            org=view.org,
            run=run.uuid,
            state=State.FAILED.value,
            after=_START.index,
            limit=FAILURES_COUNTED_MAX,
            codes_max=_CODES_MAX,
        )
        counted = int(rows[0]["counted"]) if rows else 0
        return Failures([(row["code"], row["tasks"]) for row in rows], counted)

    async def get(self, view: BatchView, task_id: str) -> TaskView:
        """Read a task of any run of the batch, with its payload as ``input``, and its result unless
        that is long. ``Engine.result`` reads long results.

        Raises JobNotFound; another organisation's id gets the same error as an id that does not
        exist.
        """
        if len(task_id) != _ID_CHARACTERS or not _HEXADECIMAL.issuperset(task_id):
            raise JobNotFound("there is no such task")
        row = await sql.first(
            self._db,
            "tasks/get",
            org=view.org,
            batch=view.uuid,
            task=UUID(task_id),
            result_bytes_max=RESULT_INLINE_BYTES_MAX,
        )
        if row is None:
            raise JobNotFound("there is no such task")
        return _view(row)

    async def _by_number(self, view: BatchView, run: RunView, first: int, limit: int) -> TaskPage:
        there = min(limit, run.counts.total - first)
        if there <= 0:
            return [], None
        places = [TaskPlace(run.uuid, index) for index in range(first, first + there)]
        found = await self._at(view, places, there)
        more = first + there < run.counts.total
        return found, _encoded(_AfterTask(first + there - 1)) if more else None

    async def _pending(
        self, view: BatchView, run: RunView, cursor: _AfterTask | _AfterPlace, limit: int
    ) -> TaskPage:
        queued: Sequence[asyncpg.Record] = []
        if cursor == _START or isinstance(cursor, _AfterPlace):
            start = (
                cursor
                if isinstance(cursor, _AfterPlace)
                else _AfterPlace(run_queue_key(run.uuid), _LONG_AGO, UUID(int=0), UUID(int=0))
            )
            queued = await sql.fetch(
                self._db,
                "tasks/queued",
                org=view.org,
                run=run.uuid,
                after_queue_key=start.queue_key,
                after_run_at=start.run_at,
                after_row=start.row,
                after_id=start.uuid,
                result_bytes_max=page_result_bytes_max(limit + 1),
                limit=limit + 1,
            )
        page = [_view(row[:-3]) for row in queued[:limit]]
        room = limit - len(page)
        if len(queued) <= limit:
            after = cursor.index if isinstance(cursor, _AfterTask) else _START.index
            later = await self._views(
                "tasks/scheduled", room + 1, org=view.org, run=run.uuid, after=after
            )
            if len(later) <= room:
                return page + later, None
            if room:
                return page + later[:room], _encoded(_AfterTask(later[room - 1].index))
        last = queued[limit - 1]  # the page is full: others start on the next
        return page, _encoded(_AfterPlace(last["flow"], last["run_at"], last["row"], last["id"]))

    async def _at(
        self, view: BatchView, places: Sequence[TaskPlace], limit: int
    ) -> Sequence[TaskView]:
        """The tasks at these places, in this order. ``limit`` is the length of the page."""
        rows = await sql.fetch(
            self._db,
            "tasks/by_ids",
            org=view.org,
            runs=list({place.run for place in places}),
            ids=[place.uuid for place in places],
            result_bytes_max=page_result_bytes_max(limit),
        )
        return [_view(row) for row in rows]

    async def _views(self, name: str, limit: int, **arguments: Any) -> list[TaskView]:
        """The tasks that a statement selects."""
        bytes_max = page_result_bytes_max(limit)
        rows = await sql.fetch(self._db, name, limit=limit, result_bytes_max=bytes_max, **arguments)
        return [_view(row) for row in rows]


# The latest tasks of positions, also for reruns and exports


async def latest_ended(
    db: Connection,
    org: str,
    place: RunPlace,
    state: State,
    *,
    after: int,
    scanned_max: int,
    error_codes: Sequence[str] = (),
) -> ScannedTasks:
    """Tasks of a run that ended in ``state`` and that no later run has repeated. The scan starts
    after the number ``after`` and covers the next ``scanned_max`` that ended in ``state``."""
    rows = await sql.fetch(
        db,
        "tasks/latest_ended",
        org=org,
        **place._asdict(),
        state=state.value,
        error_codes=list(error_codes) or None,
        after=after,
        limit=scanned_max,
    )
    return ScannedTasks(
        [row["task_index"] for row in rows if row["is_latest"]],
        rows[-1]["task_index"] if rows else after,
        len(rows) == scanned_max,
    )


async def earlier_runs(
    db: Connection | RawConnection, org: str, batch: UUID, before: int
) -> list[EarlierRun]:
    """The runs of a batch with numbers below ``before``, oldest first."""
    rows = await sql.fetch(db, "tasks/earlier_runs", org=org, batch=batch, before=before)
    return [EarlierRun(*row) for row in rows]


async def positions_of(db: Connection, org: str, run: UUID, numbers: Sequence[int]) -> list[int]:
    """The positions of a run's tasks with these numbers."""
    rows = await sql.fetch(db, "tasks/positions_of", org=org, run=run, numbers=list(numbers))
    return [row["position"] for row in rows]


async def latest_of_positions(
    db: Connection,
    org: str,
    batch: UUID,
    runs: Sequence[RunView | EarlierRun],
    positions: Sequence[int],
    before: int,
) -> list[TaskPlace]:
    """The latest tasks of positions, among the runs with numbers below ``before``.

    ``runs`` has all of these runs, and one of them has each position.
    """
    earlier = [run for run in runs if run.number < before]
    newest_first = sorted(earlier, key=lambda run: run.number, reverse=True)
    named = {}
    if any(run.mirrored < run.tasks for run in newest_first):
        rows = await sql.fetch(
            db,
            "tasks/latest_of_positions",
            org=org,
            batch=batch,
            positions=list(positions),
            before=before,
        )
        named = {row["position"]: row for row in rows}
    found = []
    for position in positions:
        mirror = next((run for run in newest_first if run.mirrored > position), None)
        row = named.get(position)
        if row is not None and (mirror is None or row["run_number"] > mirror.number):
            found.append(TaskPlace(row["run_id"], row["task_index"]))
        else:
            assert mirror is not None, "every position belongs to a run"
            found.append(TaskPlace(mirror.uuid, position))
    return found


def _view(row: asyncpg.Record | Sequence[Any]) -> TaskView:
    uuid, index, custom_id, state, *rest = row
    return TaskView(uuid, index, custom_id, State(state), *rest)


def _place(view: BatchView, run: RunView) -> RunPlace:
    return RunPlace.of(view.uuid, run, view.runs, view.current.number + 1)


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
