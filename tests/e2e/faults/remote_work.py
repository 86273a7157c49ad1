"""Has the studio's jobs done elsewhere: in a test's process, or in one of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coatcheck import Settings
from coatcheck.blobs import BlobContainer
from coatcheck.core.remote.calls import RemoteCalls
from coatcheck.db.database import Database
from coatcheck.maintenance.remote_poller import Poller, RemoteCleanup
from coatcheck.worker.worker import Worker
from tests.remote_calls.render_deployment import ENDPOINT, HeldResultStore, studio


def remote_calls(settings: Settings, database: Database) -> RemoteCalls:
    """What servers and workers alike look with."""
    blobs = BlobContainer.open(settings.blob_url)
    return RemoteCalls(
        settings, {ENDPOINT: HeldResultStore()}, database=database, blobs=lambda: blobs
    )


@asynccontextmanager
async def remote_worker(settings: Settings, *, polling: bool = True) -> AsyncIterator[Worker]:
    """A worker that is yet to be run; with ``polling``, who looks after its jobs runs already."""
    async with (
        Database.of_worker(settings.database_url) as database,
        remote_calls(settings, database) as calls,
    ):
        line = database.maintenance
        loops = (Poller(line, calls), RemoteCleanup(line, calls)) if polling else ()
        for loop in loops:
            loop.start()
        try:
            yield Worker(settings, [studio()], remote_calls=calls, database=database)
        finally:
            for loop in loops:
                await loop.stop()
