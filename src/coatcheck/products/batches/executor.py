"""The built-in service that ingests lists and writes exports, for a worker to serve.

Its jobs are ordinary jobs: they have leases and retries, and another worker takes over if this one
dies.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from coatcheck.blobs import BlobContainer
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.notifications import Notifier
from coatcheck.domain.lanes import Lane
from coatcheck.job import Job
from coatcheck.products.batches.exporter import Exporter
from coatcheck.products.batches.ingest import Ingester, IngestReport, IngestRequest
from coatcheck.products.batches.model import BATCHES_SERVICE
from coatcheck.service import Service
from coatcheck.settings import Settings
from coatcheck.worker.worker import Worker

RUN_SECONDS_MAX: Final = 6 * 3600.0
"""The time limit of one attempt. The next one continues where it stopped."""
_SLOTS: Final = {Lane.STANDARD: 2, Lane.BULK: 1}
"""Slots for lists (standard) and exports (bulk), so that neither delays the other."""
_CHUNK_SECONDS_MAX: Final = 120.0


class BatchExecutor:
    """Ingests lists and writes exports. A context manager, around the worker's whole run.

    ``notifier`` is the one that the workers of a process share.

    >>> async with BatchExecutor(settings) as batches:
    ...     await batches.worker().run()
    """

    def __init__(self, settings: Settings, notifier: Notifier | None = None) -> None:
        self._settings = settings
        self._blobs = BlobContainer.open(settings.blob_url)
        self._notify_db = Connection(settings.database_url, name="ingest notify")
        self._notifier = notifier or Notifier(self._notify_db)
        self._exporter = Exporter(settings, self._blobs)
        self.service = Service(BATCHES_SERVICE, product="batches", _internal=True)

        @self.service.post("/ingest", timeout=RUN_SECONDS_MAX)
        async def ingest(order: IngestRequest) -> IngestReport:
            async with self._db() as db:
                return await Ingester(db, self._blobs, self._notifier).ingest(order)

        @self.service.post("/export", timeout=RUN_SECONDS_MAX)
        async def export(job: Job, export: str) -> dict[str, int]:
            return await self._exporter.write(job, export)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._notifier.drain()
        await self._notify_db.close()
        await self._exporter.close()

    def worker(self) -> Worker:
        """A separate worker for lists and exports. It claims only as many as it can work on, and
        leaves the others to other processes."""
        settings = replace(
            self._settings,
            lane_concurrency={lane: _SLOTS.get(lane, 0) for lane in Lane},
        )
        name = f"{socket.gethostname()}:{os.getpid()}:{BATCHES_SERVICE}"
        return Worker(settings, [self.service], name=name, notifier=self._notifier)

    @asynccontextmanager
    async def _db(self) -> AsyncIterator[Connection]:
        """A connection for one list: writing a chunk occupies it."""
        db = Connection(
            self._settings.database_url,
            name="ingest",
            server_settings=PINNED_PLANS,
            statement_seconds_max=_CHUNK_SECONDS_MAX,
        )
        try:
            yield db
        finally:
            await db.close()
