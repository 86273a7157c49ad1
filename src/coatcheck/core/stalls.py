"""Finds out why a job is stalled. It asks the database only about jobs that are old enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from coatcheck.core.queries.explain import stall_reasons
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.database import Database
from coatcheck.domain.job import JobView
from coatcheck.settings import Settings

_READ_ROWS_MAX: Final = 500

JobKey = tuple[str, UUID]


class Stalls:
    """Finds stall reasons, for many callers at once."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._lanes = settings.lanes
        self._db = database.pooled("stalls", server_settings=PINNED_PLANS)
        self._reader: Batcher[JobKey, str | None] = Batcher(self._read, rows_max=_READ_ROWS_MAX)

    async def reason(self, view: JobView) -> str | None:
        """Why the job waits or runs for longer than its lane allows, or None."""
        if view.terminal or not self._took_long(view):
            return None
        return await self._reader.ask((view.org, view.uuid))

    async def close(self) -> None:
        await self._reader.drain()

    def _took_long(self, view: JobView) -> bool:
        """Whether the job is old enough to ask about. A held job is after half of its lane's time:
        after the whole time it is taken from a silent worker, and waits again."""
        limit = self._lanes[view.lane].ack_seconds
        if view.state.held:
            held_since = view.dispatched_at or view.created_at
            return (view.read_at - held_since).total_seconds() > limit / 2
        return (view.read_at - view.created_at).total_seconds() > limit

    async def _read(self, keys: Sequence[JobKey]) -> Sequence[str | None]:
        found = await stall_reasons(self._db, [*set(keys)], self._lanes)
        return [found.get(key) for key in keys]
