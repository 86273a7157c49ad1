"""Reads the targets and the assignments of llm jobs, and records abandoned chats."""

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
from coatcheck.products.llm import queries
from coatcheck.products.llm.queries import Assignment, TargetState

_READ_ROWS_MAX: Final = 500
_STATES_SECONDS: Final = 1.0
"""How long the states of the targets are cached."""

JobKey = tuple[str, UUID]


class LlmRepository(EngineExtension):
    """Reads assignments and targets. Concurrent reads share one query."""

    def __init__(self, context: EngineContext) -> None:
        self._read_db = context.read_db
        self._write_db = context.write_db
        self._reader: Batcher[JobKey, Assignment | None] = Batcher(
            self._read, rows_max=_READ_ROWS_MAX
        )
        self._states: Sequence[TargetState] = ()
        self._read_at: float | None = None

    async def assignment(self, org: str, job: UUID) -> Assignment | None:
        """The target that a job was assigned to last; None if it never had one."""
        return await self._reader.ask((org, job))

    async def target_states(self) -> Sequence[TargetState]:
        """Which targets can be reached. Up to a second old."""
        now = time.monotonic()
        if self._read_at is None or now - self._read_at >= _STATES_SECONDS:
            self._states = await retried(lambda: queries.target_states(self._read_db))
            self._read_at = now
        return self._states

    async def mark_abandoned(self, org: str, job: UUID) -> bool:
        """Record that the chat's synchronous caller left. Returns whether a retry may join it."""
        return await retried(lambda: queries.mark_abandoned(self._write_db, org, job))

    async def join_abandoned(
        self, org: str, owner: str, payload: bytes
    ) -> tuple[UUID, State] | None:
        """Join an abandoned chat with that payload: its id and state, or None if there is none.
        Only one retry gets it."""
        digest = hashlib.sha256(payload).digest()
        return await retried(lambda: queries.join_abandoned(self._write_db, org, owner, digest))

    async def is_for_its_caller(self, org: str, job: UUID) -> bool:
        """Whether only the synchronous caller can get the chat: it has no key and no webhook."""
        return await retried(lambda: queries.is_for_its_caller(self._write_db, org, job))

    async def drain(self) -> None:
        """Answer what was asked."""
        await self._reader.drain()

    async def _read(self, keys: Sequence[JobKey]) -> Sequence[Assignment | None]:
        found = await retried(lambda: queries.assignments(self._read_db, [*set(keys)]))
        return [found.get(key) for key in keys]
