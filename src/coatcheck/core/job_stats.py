"""Adds this process's job counts to the roll-ups, every few seconds and when it stops."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from coatcheck.core.queries import roll_ups
from coatcheck.db.connection import Connection
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.telemetry import metrics
from coatcheck.telemetry.job_stats import job_stats_of

_log = logging.getLogger(__name__)
FLUSH_SECONDS: Final = 5.0
_LAST_FLUSH_SECONDS_MAX: Final = 5.0
"""A stopping process waits no longer than this: it has more important things to write."""


class JobStatsRecorder:
    """Flushes the process's counts for a database. An engine has one, and each worker: the first
    whose turn comes leaves the others nothing to do. Its owner closes the connection."""

    def __init__(self, db: Connection) -> None:
        self._job_stats = job_stats_of(db.database_url)
        self._db = db
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="roll-ups")

    async def stop(self) -> None:
        """Flush the rest, if the database answers soon, and stop."""
        if self._task is None:
            return
        task, self._task = self._task, None
        self._stopping.set()
        try:
            async with asyncio.timeout(_LAST_FLUSH_SECONDS_MAX):
                # Not cancelled before: a flush that was cut off might be added a second time.
                await task
                await self._flush_if_possible()
        except TimeoutError:
            _log.info("the last statistics could not be added in time")

    async def flush(self) -> None:
        """Flush the counts so far. A flush that another recorder has begun ends before this."""
        async with self._job_stats.flushing():
            await self._flush()

    async def _flush(self) -> None:
        self._job_stats.flushed_at = time.monotonic()
        counted = self._job_stats.take()
        if not counted:
            return
        try:
            await roll_ups.add(self._db, counted)
            metrics.record_job_stats(counted)
        except DatabaseUnavailable as error:
            self._job_stats.give_back(counted)
            _log.info("statistics wait for the database: %s", error)
        except OutcomeUnknown:
            # It may have been added. A missing count misleads nobody; a double one would.
            metrics.record_job_stats(counted)
            _log.info("some seconds of statistics may be lost")

    async def _run(self) -> None:
        while not await self._is_stopped_within(FLUSH_SECONDS):
            if time.monotonic() - self._job_stats.flushed_at < FLUSH_SECONDS * 0.9:
                continue
            await self._flush_if_possible()

    async def _is_stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._stopping.wait()
        except TimeoutError:
            return False

    async def _flush_if_possible(self) -> None:
        try:
            await self.flush()
        except Exception:  # noqa: BLE001 - statistics must not end the process that they describe
            _log.exception("statistics could not be added")
