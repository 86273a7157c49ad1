"""Takes tasks of the run before into a new one: all of them, or those that ended in some ways.

How far it got is in the part's offset: the number of the next task to look at in its lower half,
and in its upper half which of the ways it is at.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import msgspec

from coatcheck.domain.batches import IngestOrder, TaskStatus
from coatcheck.domain.states import State
from coatcheck.store import batch_ingest
from coatcheck.store.line import Line

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


async def chunks(
    line: Line, order: IngestOrder, room: int | None = None
) -> AsyncIterator[IngestOrder]:
    """Take tasks in until there are no more; with ``room``, no more than so many in a chunk. The
    order as it is after each chunk.

    Raises Overtaken and TooManyTasks.
    """
    tasks_max = CHUNK_TASKS if room is None else min(room, CHUNK_TASKS)
    is_last = False
    while not is_last:
        if order.selection is None:
            numbers, next_offset, is_last = _all_of_them(order, tasks_max)
        else:
            numbers, next_offset, is_last = await _those_selected(
                line, order, order.selection, tasks_max
            )
        tasks = await batch_ingest.write_rerun_chunk(
            line, order, numbers, next_offset, is_last=is_last
        )
        order = replace(
            order,
            run_tasks=order.run_tasks + tasks,
            part_offset=next_offset,
            part_lines=order.part_lines + tasks,
            part_tasks=order.part_tasks + tasks,
        )
        yield order


def _all_of_them(order: IngestOrder, tasks_max: int) -> tuple[list[int], int, bool]:
    first = order.part_offset
    end = min(first + tasks_max, order.parent_tasks)
    return list(range(first, end)), end, end == order.parent_tasks


async def _those_selected(
    line: Line, order: IngestOrder, selection: str, tasks_max: int
) -> tuple[list[int], int, bool]:
    wanted = msgspec.json.decode(selection, type=_Selection)
    way, first = order.part_offset >> _HALF, order.part_offset & ((1 << _HALF) - 1)
    ways = wanted.ways
    if way >= len(ways) or order.parent_run is None:
        return [], order.part_offset, True
    numbers = await batch_ingest.select_ended(
        line, order.org, order.parent_run, ways[way], wanted.error_code, first, tasks_max
    )
    if len(numbers) == tasks_max:
        return numbers, way << _HALF | numbers[-1] + 1, False
    return numbers, way + 1 << _HALF, way + 1 == len(ways)
