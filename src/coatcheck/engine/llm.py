"""What can be asked of the llm surface's targets, and of which of them a job is at."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from coatcheck.store import llm as llm_store
from coatcheck.store.faults import retried
from coatcheck.store.group_commit import Coalescer
from coatcheck.store.line import Line
from coatcheck.store.llm import Assignment, TargetState

_READ_ROWS_MAX: Final = 500
_STATES_SECONDS: Final = 1.0
"""How old an answer about the targets may be."""

JobKey = tuple[str, UUID]


class LlmDesk:
    """Reads only; for many askers at once."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._reader: Coalescer[JobKey, Assignment | None] = Coalescer(
            self._read, rows_max=_READ_ROWS_MAX
        )
        self._states: Sequence[TargetState] = ()
        self._read_at: float | None = None

    async def assignment(self, org: str, job: UUID) -> Assignment | None:
        """The target that a job was given to last, if it ever was to one."""
        return await self._reader.ask((org, job))

    async def target_states(self) -> Sequence[TargetState]:
        """Which targets can be reached. May be a second old."""
        now = time.monotonic()
        if self._read_at is None or now - self._read_at >= _STATES_SECONDS:
            self._states = await retried(lambda: llm_store.target_states(self._line))
            self._read_at = now
        return self._states

    async def drain(self) -> None:
        """Answer what was asked."""
        await self._reader.drain()

    async def _read(self, keys: Sequence[JobKey]) -> Sequence[Assignment | None]:
        found = await retried(lambda: llm_store.assignments(self._line, [*set(keys)]))
        return [found.get(key) for key in keys]
