"""What can be asked of the llm surface's targets, of which of them a job is at, and which chats
their callers have left."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from coatcheck.core.extension import EngineContext, EngineExtension
from coatcheck.db.batcher import Batcher
from coatcheck.db.errors import retried
from coatcheck.domain.states import State
from coatcheck.products.llm import queries as llm_store
from coatcheck.products.llm.queries import Assignment, TargetState

_READ_ROWS_MAX: Final = 500
_STATES_SECONDS: Final = 1.0
"""How old an answer about the targets may be."""

JobKey = tuple[str, UUID]


class LlmRepository(EngineExtension):
    """Reads for many askers at once."""

    def __init__(self, context: EngineContext) -> None:
        self._line = context.read_db
        self._write_db = context.write_db
        self._reader: Batcher[JobKey, Assignment | None] = Batcher(
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

    async def note_abandoned(self, org: str, job: UUID) -> bool:
        """The chat's synchronous caller has gone before its answer. Whether a retry may join it."""
        return await retried(lambda: llm_store.note_abandoned(self._write_db, org, job))

    async def join_abandoned(
        self, org: str, owner: str, payload: bytes
    ) -> tuple[UUID, State] | None:
        """A chat with that payload, and its state, whose caller has gone; None if there is none.
        One retry at a time gets it."""
        digest = hashlib.sha256(payload).digest()
        return await retried(lambda: llm_store.join_abandoned(self._write_db, org, owner, digest))

    async def is_for_its_caller(self, org: str, job: UUID) -> bool:
        """Whether a chat is for nobody but its synchronous caller."""
        return await retried(lambda: llm_store.is_for_its_caller(self._write_db, org, job))

    async def drain(self) -> None:
        """Answer what was asked."""
        await self._reader.drain()

    async def _read(self, keys: Sequence[JobKey]) -> Sequence[Assignment | None]:
        found = await retried(lambda: llm_store.assignments(self._line, [*set(keys)]))
        return [found.get(key) for key in keys]
