"""The built-in service that ingests lists and writes exports, for a worker to serve.

Its jobs are ordinary jobs: they have leases and retries, and another worker takes over if this one
dies.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import Final, Self

from coatcheck.blobs import BlobContainer
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.database import Database
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

    >>> async with BatchExecutor(settings, database) as batches:
    ...     await batches.worker().run()
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings = settings
        self._blobs = BlobContainer.open(settings.blob_url)
        self._database = database
        exporter = Exporter(settings, self._blobs, database)
        self.service = Service(BATCHES_SERVICE, product="batches", _internal=True)

        @self.service.post("/ingest", timeout=RUN_SECONDS_MAX)
        async def ingest(order: IngestRequest) -> IngestReport:
            # For each list: writing a chunk occupies it.
            db = database.pooled(
                "ingest",
                server_settings=PINNED_PLANS,
                statement_seconds_max=_CHUNK_SECONDS_MAX,
                is_long=True,
            )
            return await Ingester(db, self._blobs, database.notifier).ingest(order)

        @self.service.post("/export", timeout=RUN_SECONDS_MAX)
        async def export(job: Job, export: str) -> dict[str, int]:
            return await exporter.write(job, export)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._database.notifier.drain()

    def worker(self) -> Worker:
        """A separate worker for lists and exports. It claims only as many as it can work on, and
        leaves the others to other processes."""
        settings = replace(
            self._settings, lane_concurrency={lane: _SLOTS.get(lane, 0) for lane in Lane}
        )
        name = f"{socket.gethostname()}:{os.getpid()}:{BATCHES_SERVICE}"
        return Worker(settings, [self.service], name=name, database=self._database)
