"""The base class of maintenance loops: start, tick, stop.

Any number of processes run the same loops; an advisory lock elects one process for each loop. The
lock belongs to a connection: when its holder dies, loses the database or goes silent, PostgreSQL
releases the lock, and another process acquires it at its next try. A tick is safe to run twice, so
the election only saves work.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from typing import ClassVar

from coatcheck.db.connection import Connection
from coatcheck.db.election import Election
from coatcheck.domain.errors import BlobStoreUnavailable, DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.retry import BLOB_BACKOFF, DATABASE_BACKOFF
from coatcheck.telemetry import metrics

_log = logging.getLogger(__name__)
_CANDIDATE_SECONDS = 1.0
"""How often a process that was not elected tries again."""


class Loop(ABC):
    """Calls ``tick`` in the elected process until stopped."""

    name: ClassVar[str]
    elected: ClassVar[bool] = True
    """Whether only one process ticks. A loop that divides its work itself ticks in all of them."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self.election = Election(db, self.name)
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def tick(self) -> float:
        """Do what is due now. Returns the seconds until the next tick."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"maintenance {self.name}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        failures = 0
        # Loops that start together would tick together ever after: a burst of dozens of statements
        # once a second, which every job meets that comes just then. So each has a phase of its own.
        phase = random.random()
        while True:
            try:
                has_turn = not self.elected or await self.election.won()
                pause = await self.tick() if has_turn else _CANDIDATE_SECONDS
                failures = 0
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                _log.info(
                    "maintenance waits for the database: %s", error, extra={"loop": self.name}
                )
                pause = DATABASE_BACKOFF.delay(failures, random.random())
                failures += 1
            except BlobStoreUnavailable as error:
                _log.warning(
                    "maintenance waits for the blob store: %s", error, extra={"loop": self.name}
                )
                pause = BLOB_BACKOFF.delay(failures, random.random())
                failures += 1
            except Exception:  # noqa: BLE001 - a defect must not end the loop: jobs would wait forever
                _log.exception("a maintenance tick failed", extra={"loop": self.name})
                metrics.record_upkeep_failure(self.name)
                pause = DATABASE_BACKOFF.delay(failures, random.random())
                failures += 1
            await self.rest(pause * phase)
            phase = 1.0

    async def rest(self, seconds: float) -> None:
        """Wait between two ticks. A loop that other events wake overrides this."""
        await asyncio.sleep(seconds)
