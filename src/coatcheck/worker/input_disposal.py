"""Deletes a job's input as soon as the job's end is committed.

Nothing waits for it or depends on it: if a worker dies or the store is unreachable, a maintenance
loop deletes the input a second later (maintenance/retention.py).
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Final, Self
from uuid import UUID

from coatcheck.blobs import BlobContainer
from coatcheck.core.artifacts import InputDeleter
from coatcheck.core.queries import inputs
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.database import Database
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.inputs import Mechanism
from coatcheck.domain.job import ClaimedJob

_log = logging.getLogger(__name__)
JOBS_WAITING_MAX: Final = 1_000
"""More are left to the maintenance loop."""
_DRAIN_SECONDS_MAX: Final = 10.0


class InputDisposal:
    """Deletes the inputs of ended jobs in the background. A context manager around the worker's
    whole run: leaving it waits for deletions in progress.

    >>> async with InputDisposal(database, blobs) as disposal:
    ...     await Worker(settings, services, on_ended={"docs.post__read": disposal.ended}).run()
    """

    def __init__(self, database: Database, blobs: BlobContainer) -> None:
        self._db = database.pooled("worker disposal", server_settings=PINNED_PLANS)
        self._deleter = InputDeleter(self._db, blobs)
        self._waiting: list[tuple[str, UUID]] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            _, late = await asyncio.wait([self._task], timeout=_DRAIN_SECONDS_MAX)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def ended(self, job: ClaimedJob) -> None:
        """Called when the end of ``job`` is committed."""
        if len(self._waiting) >= JOBS_WAITING_MAX:
            return
        self._waiting.append((job.org, job.uuid))
        if self._task is None:
            self._task = asyncio.create_task(self._dispose(), name="worker disposal")

    async def _dispose(self) -> None:
        try:
            while self._waiting:
                jobs, self._waiting = self._waiting, []
                copies = await inputs.open_blobs(self._db, jobs)
                await self._deleter.delete([(copy, Mechanism.WORKER) for copy in copies])
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            self._waiting.clear()
            _log.info("leaving the inputs of ended jobs to maintenance: %s", error)
        except Exception:  # noqa: BLE001 - a defect here must not affect the job, which has ended
            self._waiting.clear()
            _log.exception("leaving the inputs of ended jobs to maintenance")
        finally:
            self._task = None
