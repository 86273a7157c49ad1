"""All maintenance loops of a process, those of its products included, on one connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coatcheck.blobs import BlobContainer
from coatcheck.db.connection import PINNED_PLANS, Line
from coatcheck.db.election import session_that_ends_if_silent
from coatcheck.db.notify import Notifier
from coatcheck.maintenance.artifact_cleanup import ArtifactKeeper
from coatcheck.maintenance.catalogue_resolver import CatalogueResolver
from coatcheck.maintenance.dead_workers import DeadWorkerDetector
from coatcheck.maintenance.expirer import Expirer
from coatcheck.maintenance.input_expirer import Forgetter
from coatcheck.maintenance.loop import Loop
from coatcheck.maintenance.metrics_folder import MetricsFolder
from coatcheck.maintenance.orphan_blobs import Sweeper
from coatcheck.maintenance.pruner import Pruner
from coatcheck.maintenance.rescuer import Rescuer
from coatcheck.maintenance.secret_rotation import SecretsKeeper
from coatcheck.maintenance.stager import Stager
from coatcheck.maintenance.stats_pruner import RollUpKeeper
from coatcheck.maintenance.stripe_client import StripeClient
from coatcheck.maintenance.stripe_meter import StripeMeter
from coatcheck.maintenance.usage_reporter import UsageReporter
from coatcheck.maintenance.usage_rollup import Bookkeeper
from coatcheck.maintenance.webhook_pruner import WebhookKeeper
from coatcheck.settings import Settings


@dataclass(frozen=True, slots=True)
class MaintenanceContext:
    """What a product's loops are made with. ``line`` is shared by all loops of a process."""

    settings: Settings
    line: Line
    notifier: Notifier
    blobs: BlobContainer


class Upkeep:
    """Starts and stops the loops. Every server and every worker runs one; see ``loop.py``.

    ``products`` make the loops of the products that are on.
    """

    def __init__(
        self,
        settings: Settings,
        products: Sequence[Callable[[MaintenanceContext], Sequence[Loop]]] = (),
    ) -> None:
        blobs = BlobContainer.open(settings.blob_url)
        keep = settings.keep_failed_seconds
        # Ticks are short and take turns; the locks of all elections live on this connection.
        # Pinned: guessing, PostgreSQL would read the whole history every second to find the few.
        self._line = Line(
            settings.database_url,
            name="upkeep",
            server_settings={**PINNED_PLANS, **session_that_ends_if_silent()},
        )
        self._notify_line = Line(settings.database_url, name="upkeep notify")
        self._notifier = Notifier(self._notify_line)
        context = MaintenanceContext(settings, self._line, self._notifier, blobs)
        rescuer = Rescuer(self._line, self._notifier, keep_failed_seconds=keep)
        self.loops: tuple[Loop, ...] = (
            Stager(self._line, self._notifier),
            rescuer,
            DeadWorkerDetector(self._line, rescuer),
            CatalogueResolver(self._line),
            Expirer(self._line, self._notifier, keep_failed_seconds=keep),
            Bookkeeper(self._line, self._notifier),
            Pruner(self._line, blobs),
            ArtifactKeeper(self._line, blobs),
            Forgetter(self._line, blobs),
            Sweeper(self._line, blobs),
            WebhookKeeper(self._line),
            MetricsFolder(self._line),
            RollUpKeeper(self._line),
            SecretsKeeper(self._line, settings),
            *_reporters(self._line, settings),
            *_meters(self._line, settings),
            *(loop for make in products for loop in make(context)),
        )

    def start(self) -> None:
        for loop in self.loops:
            loop.start()

    async def stop(self) -> None:
        for loop in self.loops:
            await loop.stop()
        await self._notifier.drain()
        await self._line.close()
        await self._notify_line.close()


def _reporters(line: Line, settings: Settings) -> tuple[Loop, ...]:
    schedule = settings.usage_reports
    return () if schedule == "off" else (UsageReporter(line, schedule),)


def _meters(line: Line, settings: Settings) -> tuple[Loop, ...]:
    """Only where the key is: servers have it, and workers, which run users' code, need not."""
    if not settings.stripe_api_key:
        return ()
    return (StripeMeter(line, StripeClient(settings.stripe_api_key), settings.stripe_meters),)
