"""Deletes orphan blobs: those whose row was never written, or went before they did."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import artifacts_of, job_of
from coatcheck.store import reports
from coatcheck.store.line import Line
from coatcheck.upkeep.loop import Loop

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 60.0


class Sweeper(Loop):
    """``grace`` is how old a blob must be: between its upload and its row lies a moment."""

    name: ClassVar[str] = "sweeper"

    def __init__(
        self, line: Line, blobs: BlobContainer, *, grace: timedelta = timedelta(hours=1)
    ) -> None:
        super().__init__(line)
        self._blobs = blobs
        self._grace = grace
        self._prefix: str | None = None

    async def tick(self) -> float:
        if self._prefix is None:
            self._prefix = artifacts_of(await reports.deployment(self._line))
        limit = datetime.now(UTC) - self._grace
        async for keys in self._blobs.older_than(limit, self._prefix):
            await self._sweep(keys)
        unfinished = await self._blobs.drop_unfinished(limit, self._prefix)
        if unfinished:
            _log.info("swept %d unfinished uploads", unfinished)
        return _LOOK_SECONDS

    async def _sweep(self, keys: list[str]) -> None:
        named = [(job, key) for key in keys if (job := job_of(key)) is not None]
        if not named:
            return
        known = await reports.known_blobs(self._line, named)
        orphans = [key for _, key in named if key not in known]
        if orphans:
            await self._blobs.delete(orphans)
            _log.info("swept %d orphan blobs", len(orphans))
