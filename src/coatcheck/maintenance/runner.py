"""Runs all maintenance loops of a process, including those of its products, on one connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coatcheck.blobs import BlobContainer
from coatcheck.db.connection import Connection
from coatcheck.db.database import Database
from coatcheck.db.notifications import Notifier
from coatcheck.maintenance.catalogue import CatalogueResolver, SecretRotation
from coatcheck.maintenance.jobs import DeadWorkerDetector, Expirer, Rescuer, Stager
from coatcheck.maintenance.loop import Loop
from coatcheck.maintenance.retention import (
    ArtifactCleanup,
    InputExpirer,
    MetricsFolder,
    OrphanBlobSweeper,
    Pruner,
    StatsPruner,
    WebhookPruner,
)
from coatcheck.maintenance.usage import StripeClient, StripeMeter, UsageReporter, UsageRollup
from coatcheck.settings import Settings


@dataclass(frozen=True, slots=True)
class MaintenanceContext:
    """What a product gets to create its loops. All loops of a process share ``db``."""

    settings: Settings
    db: Connection
    notifier: Notifier
    blobs: BlobContainer


class MaintenanceRunner:
    """Starts and stops the loops. Every server and every worker has one; see ``loop.py``.

    ``products`` create the loops of the products that are on. ``database`` has the connections of
    the process; whoever made it closes it.
    """

    def __init__(
        self,
        settings: Settings,
        products: Sequence[Callable[[MaintenanceContext], Sequence[Loop]]] = (),
        *,
        database: Database | None = None,
    ) -> None:
        blobs = BlobContainer.open(settings.blob_url)
        keep = settings.keep_failed_seconds
        self._owns_database = database is None
        self._database = database = database or Database.of_worker(settings.database_url)
        # Ticks are short and take turns. This connection has the locks of all elections.
        db, notifier = database.maintenance, database.notifier
        context = MaintenanceContext(settings, db, notifier, blobs)
        rescuer = Rescuer(db, notifier, keep_failed_seconds=keep)
        self.loops: tuple[Loop, ...] = (
            Stager(db, notifier),
            rescuer,
            DeadWorkerDetector(db, rescuer),
            CatalogueResolver(db),
            Expirer(db, notifier, keep_failed_seconds=keep),
            UsageRollup(db, notifier),
            Pruner(db, blobs),
            ArtifactCleanup(db, blobs),
            InputExpirer(db, blobs),
            OrphanBlobSweeper(db, blobs),
            WebhookPruner(db),
            MetricsFolder(db),
            StatsPruner(db),
            SecretRotation(db, settings),
            *_reporters(db, settings),
            *_meters(db, settings),
            *(loop for make in products for loop in make(context)),
        )

    def start(self) -> None:
        for loop in self.loops:
            loop.start()

    async def stop(self) -> None:
        for loop in self.loops:
            await loop.stop()
        await self._database.maintenance.close()  # others are elected at once
        if self._owns_database:
            await self._database.close()


def _reporters(db: Connection, settings: Settings) -> tuple[Loop, ...]:
    schedule = settings.usage_reports
    return () if schedule == "off" else (UsageReporter(db, schedule),)


def _meters(db: Connection, settings: Settings) -> tuple[Loop, ...]:
    """Only with the API key: servers have it; workers, which run users' code, need not."""
    if not settings.stripe_api_key:
        return ()
    return (StripeMeter(db, StripeClient(settings.stripe_api_key), settings.stripe_meters),)
