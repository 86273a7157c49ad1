"""Says why a job does not get on, asking the database only about those that took long enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from coatcheck.core.queries.stalls import stall_reasons
from coatcheck.db.batcher import Batcher
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.errors import retried
from coatcheck.domain.job import JobView
from coatcheck.settings import Settings

_READ_ROWS_MAX: Final = 500

JobKey = tuple[str, UUID]


class Stalls:
    """Why jobs are stalled, for many askers at once. Its connection is made when first needed."""

    def __init__(self, settings: Settings) -> None:
        self._lanes = settings.lanes
        self._db = Connection(settings.database_url, name="stalls", server_settings=PINNED_PLANS)
        self._reader: Batcher[JobKey, str | None] = Batcher(self._read, rows_max=_READ_ROWS_MAX)

    async def reason(self, view: JobView) -> str | None:
        """Why the job waits or runs for longer than its lane should need, or None."""
        if view.terminal or not self._took_long(view):
            return None
        return await self._reader.ask((view.org, view.uuid))

    async def close(self) -> None:
        await self._reader.drain()
        await self._db.close()

    def _took_long(self, view: JobView) -> bool:
        """Whether it is old enough to be asked about, at all. A held job is from half of its lane's
        time on: after the whole of it the job is taken from a silent worker, and waits again."""
        patience = self._lanes[view.lane].ack_seconds
        if view.state.held:
            held_since = view.dispatched_at or view.created_at
            return (view.read_at - held_since).total_seconds() > patience / 2
        return (view.read_at - view.created_at).total_seconds() > patience

    async def _read(self, keys: Sequence[JobKey]) -> Sequence[str | None]:
        found = await retried(lambda: stall_reasons(self._db, [*set(keys)], self._lanes))
        return [found.get(key) for key in keys]
