"""Takes tasks of runs before into a new one: of one run or of the batch as a whole, all of them or
those that ended in some ways.

How far it got is in the part's offset: the number of the next task to look at in its lower half,
and in its upper half which step it is at: for each of the ways, for each of the runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from coatcheck.db.connection import Connection
from coatcheck.domain.states import State
from coatcheck.products.batches.model import (
    IngestOrder,
    MirrorRun,
    TaskPlace,
    TaskStatus,
    mirrored_after,
)
from coatcheck.products.batches.queries import ingest
from coatcheck.products.batches.queries import positions as batch_positions
from coatcheck.products.batches.queries import tasks as batch_tasks
from coatcheck.products.batches.queries.ingest import Repeated
from coatcheck.products.batches.queries.positions import EarlierRun
from coatcheck.products.batches.queries.tasks import RunPlace

CHUNK_TASKS: Final = 5_000
_HALF: Final = 32
_ENDS: Final = {
    TaskStatus.SUCCEEDED: State.COMPLETED,
    TaskStatus.FAILED: State.FAILED,
    TaskStatus.CANCELLED: State.CANCELLED,
}


class _Selection(msgspec.Struct, frozen=True):
    status: list[TaskStatus] = []
    error_code: list[str] = []

    @property
    def ways(self) -> list[State]:
        """The ends to look for, one after the other. Without any given, all."""
        wanted = set(self.status) or set(_ENDS)
        return [state for status, state in _ENDS.items() if status in wanted]


class _Step(NamedTuple):
    """One range to look through: the tasks of a run that ended one way."""

    state: State
    run: EarlierRun


class _ChosenTasks(NamedTuple):
    """The next tasks to take, each with its position, and how far that is."""

    tasks: Sequence[tuple[TaskPlace, int]]
    next_offset: int
    is_last: bool


async def chunks(
    line: Connection, order: IngestOrder, room: int | None = None
) -> AsyncIterator[IngestOrder]:
    """Take tasks in until there are no more; with ``room``, no more than so many in a chunk. The
    order as it is after each chunk.

    Raises Overtaken and TooManyTasks.
    """
    tasks_max = CHUNK_TASKS if room is None else min(room, CHUNK_TASKS)
    runs = await batch_positions.earlier_runs(line, order.org, order.batch, order.run_number)
    source = _Source(line, order, runs)
    is_last = False
    while not is_last:
        chosen = await source.choose(order.part_offset, tasks_max)
        tasks = await ingest.write_rerun_chunk(
            line,
            order,
            await source.repeated(chosen.tasks),
            chosen.next_offset,
            is_last=chosen.is_last,
        )
        is_last = chosen.is_last
        order = replace(
            order,
            run_tasks=order.run_tasks + tasks,
            part_offset=chosen.next_offset,
            part_lines=order.part_lines + tasks,
            part_tasks=order.part_tasks + tasks,
        )
        yield order


@dataclass(frozen=True)
class _Source:
    """What a rerun takes from. ``runs`` are those before it, which have ended: nothing of them
    changes any more."""

    line: Connection
    order: IngestOrder
    runs: Sequence[EarlierRun]

    async def choose(self, offset: int, tasks_max: int) -> _ChosenTasks:
        """The next tasks after ``offset``."""
        order = self.order
        if order.selection is not None:
            return await self._selected(offset, tasks_max, order.selection)
        if order.source_before is not None:
            return await self._all_of_the_batch(offset, tasks_max, order.source_before)
        return await self._all_of_a_run(offset, tasks_max)

    async def repeated(self, tasks: Sequence[tuple[TaskPlace, int]]) -> list[Repeated]:
        """These tasks, with those that new ones take the place of."""
        if self.order.source_before == self.order.run_number:
            return [Repeated(source, position, source) for source, position in tasks]
        positions = [position for _, position in tasks]
        replaced = await self._latest(positions, self.order.run_number)
        return [
            Repeated(source, position, latest)
            for (source, position), latest in zip(tasks, replaced, strict=True)
        ]

    async def _all_of_a_run(self, offset: int, tasks_max: int) -> _ChosenTasks:
        order = self.order
        end = min(offset + tasks_max, order.parent_tasks)
        if order.parent_run is None:
            return _ChosenTasks([], end, True)
        tasks = await self._of_run(order.parent_run, range(offset, end))
        return _ChosenTasks(tasks, end, end == order.parent_tasks)

    async def _all_of_the_batch(self, offset: int, tasks_max: int, before: int) -> _ChosenTasks:
        positions_max = sum(run.new_tasks for run in self.runs if run.number < before)
        end = min(offset + tasks_max, positions_max)
        positions = range(offset, end)
        tasks = await self._latest(positions, before)
        return _ChosenTasks([*zip(tasks, positions, strict=True)], end, end == positions_max)

    async def _selected(self, offset: int, tasks_max: int, selection: str) -> _ChosenTasks:
        wanted = msgspec.json.decode(selection, type=_Selection)
        steps = self._steps(wanted)
        at, first = offset >> _HALF, offset & ((1 << _HALF) - 1)
        while at < len(steps):
            step = steps[at]
            numbers, last, more = await self._look_through(step, wanted, first, tasks_max)
            if more:
                first = last + 1
            else:
                at, first = at + 1, 0
            if numbers or at == len(steps):
                tasks = await self._of_run(step.run.uuid, numbers)
                return _ChosenTasks(tasks, at << _HALF | first, at == len(steps))
        return _ChosenTasks([], offset, True)

    def _steps(self, wanted: _Selection) -> list[_Step]:
        before = self.order.source_before
        runs = [
            run
            for run in self.runs
            if (run.uuid == self.order.parent_run if before is None else run.number < before)
        ]
        return [_Step(way, run) for way in wanted.ways for run in runs]

    async def _look_through(
        self, step: _Step, wanted: _Selection, first: int, tasks_max: int
    ) -> tuple[Sequence[int], int, bool]:
        """Numbers of tasks to take, the last number that was looked at, and whether there may be
        more."""
        order, before = self.order, self.order.source_before
        if before is None:
            found = await ingest.select_ended(
                self.line,
                order.org,
                step.run.uuid,
                step.state,
                wanted.error_code,
                first,
                tasks_max,
            )
            return found, found[-1] if found else first, len(found) == tasks_max
        later = [run for run in self._mirrors() if run.number < before]
        return await batch_tasks.latest_ended(
            self.line,
            order.org,
            RunPlace(
                order.batch,
                step.run.uuid,
                step.run.number,
                mirrored_after(later, step.run.number),
                before,
            ),
            step.state,
            after=first - 1,
            looked_at_max=tasks_max,
            error_codes=wanted.error_code,
        )

    async def _of_run(self, run: UUID, numbers: Sequence[int]) -> list[tuple[TaskPlace, int]]:
        mirrors = any(each.uuid == run and each.mirrored == each.tasks for each in self.runs)
        positions = (
            numbers
            if mirrors
            else await batch_positions.of_tasks(self.line, self.order.org, run, numbers)
        )
        return [
            (TaskPlace(run, number), position)
            for number, position in zip(numbers, positions, strict=True)
        ]

    async def _latest(self, positions: Sequence[int], before: int) -> list[TaskPlace]:
        order = self.order
        return await batch_positions.latest(
            self.line, order.org, order.batch, self._mirrors(), positions, before
        )

    def _mirrors(self) -> list[MirrorRun]:
        return [MirrorRun(run.number, run.uuid, run.mirrored, run.tasks) for run in self.runs]
