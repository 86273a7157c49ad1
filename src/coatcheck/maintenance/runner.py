"""Runs all maintenance loops of a process, including those of its products, on one connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coatcheck.blobs import BlobContainer
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.election import session_that_ends_if_silent
from coatcheck.db.notifications import Notifier
from coatcheck.maintenance.catalogue import CatalogueResolver, SecretRotation
from coatcheck.maintenance.due_jobs import Expirer, Stager
from coatcheck.maintenance.loop import Loop
from coatcheck.maintenance.rescuer import DeadWorkerDetector, Rescuer
from coatcheck.maintenance.retention import (
    ArtifactCleanup,
    InputExpirer,
    MetricsFolder,
    OrphanBlobSweeper,
    Pruner,
    StatsPruner,
    WebhookPruner,
)
from coatcheck.maintenance.stripe import StripeClient, StripeMeter
from coatcheck.maintenance.usage import UsageReporter, UsageRollup
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

    ``products`` create the loops of the products that are on.
    """

    def __init__(
        self,
        settings: Settings,
        products: Sequence[Callable[[MaintenanceContext], Sequence[Loop]]] = (),
    ) -> None:
        blobs = BlobContainer.open(settings.blob_url)
        keep = settings.keep_failed_seconds
        # Ticks are short and take turns. This connection has the locks of all elections. Its plans
        # are pinned: PostgreSQL might read the whole history every second, for a few rows.
        self._db = Connection(
            settings.database_url,
            name="maintenance",
            server_settings={**PINNED_PLANS, **session_that_ends_if_silent()},
        )
        self._notify_db = Connection(settings.database_url, name="maintenance notify")
        self._notifier = Notifier(self._notify_db)
        context = MaintenanceContext(settings, self._db, self._notifier, blobs)
        rescuer = Rescuer(self._db, self._notifier, keep_failed_seconds=keep)
        self.loops: tuple[Loop, ...] = (
            Stager(self._db, self._notifier),
            rescuer,
            DeadWorkerDetector(self._db, rescuer),
            CatalogueResolver(self._db),
            Expirer(self._db, self._notifier, keep_failed_seconds=keep),
            UsageRollup(self._db, self._notifier),
            Pruner(self._db, blobs),
            ArtifactCleanup(self._db, blobs),
            InputExpirer(self._db, blobs),
            OrphanBlobSweeper(self._db, blobs),
            WebhookPruner(self._db),
            MetricsFolder(self._db),
            StatsPruner(self._db),
            SecretRotation(self._db, settings),
            *_reporters(self._db, settings),
            *_meters(self._db, settings),
            *(loop for make in products for loop in make(context)),
        )

    def start(self) -> None:
        for loop in self.loops:
            loop.start()

    async def stop(self) -> None:
        for loop in self.loops:
            await loop.stop()
        await self._notifier.drain()
        await self._db.close()
        await self._notify_db.close()


def _reporters(db: Connection, settings: Settings) -> tuple[Loop, ...]:
    schedule = settings.usage_reports
    return () if schedule == "off" else (UsageReporter(db, schedule),)


def _meters(db: Connection, settings: Settings) -> tuple[Loop, ...]:
    """Only with the API key: servers have it; workers, which run users' code, need not."""
    if not settings.stripe_api_key:
        return ()
    return (StripeMeter(db, StripeClient(settings.stripe_api_key), settings.stripe_meters),)
