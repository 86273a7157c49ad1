"""Ingests a rerun: copies tasks of earlier runs into a new one.

The tasks come from one run or from the batch as a whole: all of them, or those that ended in
certain states. The part's offset records the progress. Its lower half is the number of the next
task to look at; its upper half is the step. There is a step for each state and each run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from coatcheck.db.connection import Connection
from coatcheck.domain.states import State
from coatcheck.products.batches import ingest_repository as ingest
from coatcheck.products.batches import task_repository
from coatcheck.products.batches.ingest_repository import RepeatedTask
from coatcheck.products.batches.model import (
    EarlierRun,
    IngestSnapshot,
    RunFilter,
    RunPlace,
    TaskPlace,
)

CHUNK_TASKS: Final = 5_000
_HALF: Final = 32


class _Step(NamedTuple):
    """One range to scan: the tasks of a run that ended in one state."""

    state: State
    run: EarlierRun


class _ChosenTasks(NamedTuple):
    """The next tasks to copy, each with its position, and the offset after them."""

    tasks: Sequence[tuple[TaskPlace, int]]
    next_offset: int
    is_last: bool


async def chunks(
    db: Connection, snapshot: IngestSnapshot, room: int | None = None
) -> AsyncIterator[IngestSnapshot]:
    """Copy tasks, chunk by chunk, until there are no more. Yields the snapshot after each chunk.

    With ``room``, a chunk has at most that many tasks. Raises Overtaken and TooManyTasks.
    """
    tasks_max = CHUNK_TASKS if room is None else min(room, CHUNK_TASKS)
    runs = await task_repository.earlier_runs(db, snapshot.org, snapshot.batch, snapshot.run_number)
    source = _Source(db, snapshot, runs)
    is_last = False
    while not is_last:
        chosen = await source.choose(snapshot.part_offset, tasks_max)
        tasks = await ingest.write_rerun_chunk(
            db,
            snapshot,
            await source.repeated(chosen.tasks),
            chosen.next_offset,
            is_last=chosen.is_last,
        )
        is_last = chosen.is_last
        snapshot = replace(
            snapshot,
            run_tasks=snapshot.run_tasks + tasks,
            part_offset=chosen.next_offset,
            part_lines=snapshot.part_lines + tasks,
            part_tasks=snapshot.part_tasks + tasks,
        )
        yield snapshot


@dataclass(frozen=True)
class _Source:
    """The source of a rerun's tasks. ``runs`` are the earlier ones, which have ended: they do not
    change any more."""

    db: Connection
    snapshot: IngestSnapshot
    runs: Sequence[EarlierRun]

    async def choose(self, offset: int, tasks_max: int) -> _ChosenTasks:
        """The next tasks after ``offset``."""
        snapshot = self.snapshot
        if snapshot.selection is not None:
            return await self._selected(offset, tasks_max, snapshot.selection)
        if snapshot.source_before is not None:
            return await self._all_of_the_batch(offset, tasks_max, snapshot.source_before)
        return await self._all_of_a_run(offset, tasks_max)

    async def repeated(self, tasks: Sequence[tuple[TaskPlace, int]]) -> list[RepeatedTask]:
        """These tasks, each with the latest task of its position, which the copy replaces."""
        if self.snapshot.source_before == self.snapshot.run_number:
            return [RepeatedTask(source, position, source) for source, position in tasks]
        positions = [position for _, position in tasks]
        replaced = await self._latest(positions, self.snapshot.run_number)
        return [
            RepeatedTask(source, position, latest)
            for (source, position), latest in zip(tasks, replaced, strict=True)
        ]

    async def _all_of_a_run(self, offset: int, tasks_max: int) -> _ChosenTasks:
        snapshot = self.snapshot
        end = min(offset + tasks_max, snapshot.parent_tasks)
        if snapshot.parent_run is None:
            return _ChosenTasks([], end, True)
        tasks = await self._of_run(snapshot.parent_run, range(offset, end))
        return _ChosenTasks(tasks, end, end == snapshot.parent_tasks)

    async def _all_of_the_batch(self, offset: int, tasks_max: int, before: int) -> _ChosenTasks:
        positions_max = sum(run.new_tasks for run in self.runs if run.number < before)
        end = min(offset + tasks_max, positions_max)
        positions = range(offset, end)
        tasks = await self._latest(positions, before)
        return _ChosenTasks([*zip(tasks, positions, strict=True)], end, end == positions_max)

    async def _selected(self, offset: int, tasks_max: int, selection: str) -> _ChosenTasks:
        filters = msgspec.json.decode(selection, type=RunFilter)
        steps = self._steps(filters)
        at, first = offset >> _HALF, offset & ((1 << _HALF) - 1)
        while at < len(steps):
            step = steps[at]
            numbers, last, more = await self._scan(step, filters, first, tasks_max)
            if more:
                first = last + 1
            else:
                at, first = at + 1, 0
            if numbers or at == len(steps):
                tasks = await self._of_run(step.run.uuid, numbers)
                return _ChosenTasks(tasks, at << _HALF | first, at == len(steps))
        return _ChosenTasks([], offset, True)

    def _steps(self, filters: RunFilter) -> list[_Step]:
        before = self.snapshot.source_before
        runs = [
            run
            for run in self.runs
            if (run.uuid == self.snapshot.parent_run if before is None else run.number < before)
        ]
        return [_Step(state, run) for state in filters.states for run in runs]

    async def _scan(
        self, step: _Step, filters: RunFilter, first: int, tasks_max: int
    ) -> tuple[Sequence[int], int, bool]:
        """Numbers of tasks to copy, the last number that was scanned, and whether there may be
        more."""
        snapshot, before = self.snapshot, self.snapshot.source_before
        if before is None:
            found = await ingest.select_ended(
                self.db,
                snapshot.org,
                step.run.uuid,
                step.state,
                filters.error_code,
                first,
                tasks_max,
            )
            return found, found[-1] if found else first, len(found) == tasks_max
        return await task_repository.latest_ended(
            self.db,
            snapshot.org,
            RunPlace.of(snapshot.batch, step.run, self.runs, before),
            step.state,
            after=first - 1,
            scanned_max=tasks_max,
            error_codes=filters.error_code,
        )

    async def _of_run(self, run: UUID, numbers: Sequence[int]) -> list[tuple[TaskPlace, int]]:
        mirrors = any(each.uuid == run and each.mirrored == each.tasks for each in self.runs)
        positions = (
            numbers
            if mirrors
            else await task_repository.positions_of(self.db, self.snapshot.org, run, numbers)
        )
        return [
            (TaskPlace(run, number), position)
            for number, position in zip(numbers, positions, strict=True)
        ]

    async def _latest(self, positions: Sequence[int], before: int) -> list[TaskPlace]:
        snapshot = self.snapshot
        return await task_repository.latest_of_positions(
            self.db, snapshot.org, snapshot.batch, self.runs, positions, before
        )
