"""Deletes jobs, inputs, artifacts, blobs, webhooks and statistics whose retention has ended."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar, Final
from uuid import UUID

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import artifacts_of, input_of_piece, inputs_of, job_of
from coatcheck.core.artifacts import ArtifactDeleter, InputDeleter
from coatcheck.core.process_metrics import FOLDED_ROWS_MAX, fold
from coatcheck.core.queries import (
    artifacts,
    billing,
    inputs,
    maintenance,
    reports,
    roll_ups,
    usage,
    webhooks,
)
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection
from coatcheck.domain.limits import (
    ROLL_UPS_KEPT_SECONDS,
    USAGE_HOURS_KEPT_DAYS,
    USAGE_REPORTS_KEPT_DAYS,
)
from coatcheck.maintenance.loop import Loop
from coatcheck.telemetry import metrics

_log = logging.getLogger(__name__)

_PRUNE_ROWS_MAX = 500
_PRUNE_TICK_SECONDS = 5.0


class Pruner(Loop):
    """Deletes jobs whose retention has ended, and the blobs of their artifacts."""

    name: ClassVar[str] = "pruner"

    def __init__(self, db: Connection, blobs: BlobContainer) -> None:
        super().__init__(db)
        self._deleter = ArtifactDeleter(db, blobs)

    async def tick(self) -> float:
        pruned = await maintenance.prune(self._db, _PRUNE_ROWS_MAX)
        if pruned.blobs:
            crash_point("prune.rows_deleted_blobs_not")
        await self._deleter.delete(pruned.blobs)
        return 0.0 if pruned.jobs == _PRUNE_ROWS_MAX else _PRUNE_TICK_SECONDS


ARTIFACT_ROWS_MAX: Final = 200
_ARTIFACT_TICK_SECONDS: Final = 5.0
_GRACE_SECONDS: Final = 5.0
"""Whatever deletes an artifact's row also deletes its blob, and gets this long to do it."""


class ArtifactCleanup(Loop):
    """Deletes artifacts' blobs that were left behind. Usually whatever deleted the row deletes the
    blob: the pruner, a worker that replaced the artifact, a server at a caller's request."""

    name: ClassVar[str] = "artifact cleanup"

    def __init__(
        self, db: Connection, blobs: BlobContainer, *, grace_seconds: float = _GRACE_SECONDS
    ) -> None:
        super().__init__(db)
        self._deleter = ArtifactDeleter(db, blobs)
        self._grace_seconds = grace_seconds

    async def tick(self) -> float:
        await self._delete_left_behind()
        forgotten = await artifacts.prune(self._db, ARTIFACT_ROWS_MAX)
        return 0.0 if forgotten == ARTIFACT_ROWS_MAX else _ARTIFACT_TICK_SECONDS

    async def _delete_left_behind(self) -> None:
        last = None
        while True:
            page = await artifacts.undeleted_blobs(
                self._db, ARTIFACT_ROWS_MAX, grace_seconds=self._grace_seconds, after=last
            )
            if page:
                deleted = await self._deleter.delete([left.blob for left in page])
                _log.info("deleted %d of %d artifacts that were left behind", deleted, len(page))
            if len(page) < ARTIFACT_ROWS_MAX:
                return
            last = page[-1]


INPUT_ROWS_MAX: Final = 200
_INPUT_TICK_SECONDS: Final = 1.0


class InputExpirer(Loop):
    """Deletes inputs whose job or time to live has ended. Usually the worker that ended the job has
    done so (worker/input_disposal.py). The sweeper deletes blobs that have no record."""

    name: ClassVar[str] = "input expirer"

    def __init__(self, db: Connection, blobs: BlobContainer) -> None:
        super().__init__(db)
        self._deleter = InputDeleter(db, blobs)

    async def tick(self) -> float:
        await self._delete_due()
        closed = await inputs.close_pointers(self._db, INPUT_ROWS_MAX)
        forgotten = await inputs.prune(self._db, INPUT_ROWS_MAX)
        return 0.0 if INPUT_ROWS_MAX in (closed, forgotten) else _INPUT_TICK_SECONDS

    async def _delete_due(self) -> None:
        page = await inputs.due(self._db, INPUT_ROWS_MAX)
        while page:
            deleted = await self._deleter.delete([(due.copy, due.mechanism) for due in page])
            why = Counter(due.mechanism for due in page)
            _log.info(
                "deleted %d of %d inputs that were due",
                deleted,
                len(page),
                extra={str(mechanism): count for mechanism, count in why.items()},
            )
            if len(page) < INPUT_ROWS_MAX:
                return
            page = await inputs.due(self._db, INPUT_ROWS_MAX, after=page[-1])


_ORPHAN_TICK_SECONDS = 60.0
ARTIFACT_GRACE: Final = timedelta(hours=1)
INPUT_GRACE: Final = timedelta(minutes=30)
"""An upload may take 15 minutes from its first piece to its row."""

Owned = tuple[UUID, str]
"""The owner that a blob's key names, and the key that a row would have for it."""


@dataclass(frozen=True, slots=True)
class BlobKind:
    """One kind of blob: its prefix, the minimum age of an orphan, and how to find its row."""

    name: str
    prefix: Callable[[UUID], str]
    grace: timedelta
    owned: Callable[[str], Owned | None]
    known: Callable[[Connection, Sequence[Owned]], Awaitable[set[str]]]


def whole(owner_of: Callable[[str], UUID | None]) -> Callable[[str], Owned | None]:
    """For blobs that are not stored in pieces: their row has their own key."""

    def owned(key: str) -> Owned | None:
        owner = owner_of(key)
        return None if owner is None else (owner, key)

    return owned


class OrphanBlobSweeper(Loop):
    """Deletes blobs that no row refers to: inputs and artifacts of jobs. A product derives a class
    with other ``kinds`` for its own blobs.

    ``grace`` overrides the minimum age of every kind. A blob needs one, because it is uploaded
    before its row is written.
    """

    name: ClassVar[str] = "sweeper"
    kinds: ClassVar[Sequence[BlobKind]] = (
        BlobKind("artifacts", artifacts_of, ARTIFACT_GRACE, whole(job_of), reports.known_blobs),
        BlobKind("inputs", inputs_of, INPUT_GRACE, input_of_piece, inputs.known_inputs),
    )

    def __init__(
        self, db: Connection, blobs: BlobContainer, *, grace: timedelta | None = None
    ) -> None:
        super().__init__(db)
        self._blobs = blobs
        self._deployment: UUID | None = None
        self._kinds = [kind if grace is None else replace(kind, grace=grace) for kind in self.kinds]

    async def tick(self) -> float:
        if self._deployment is None:
            self._deployment = await reports.deployment(self._db)
        for kind in self._kinds:
            await self._sweep(kind, kind.prefix(self._deployment))
        return _ORPHAN_TICK_SECONDS

    async def _sweep(self, kind: BlobKind, prefix: str) -> None:
        limit = await maintenance.clock(self._db) - kind.grace
        swept = 0
        async for keys in self._blobs.older_than(limit, prefix):
            swept += await self._delete_orphans(kind, keys)
        unfinished = await self._blobs.drop_unfinished(limit, prefix)
        metrics.record_sweep(kind.name, swept + unfinished)
        if swept or unfinished:
            _log.info(
                "swept %d orphan blobs and %d unfinished uploads of %s",
                swept,
                unfinished,
                kind.name,
            )

    async def _delete_orphans(self, kind: BlobKind, keys: list[str]) -> int:
        owned = {key: owner for key in keys if (owner := kind.owned(key)) is not None}
        if not owned:
            return 0
        known = await kind.known(self._db, [*set(owned.values())])
        orphans = [key for key, (_, owner_key) in owned.items() if owner_key not in known]
        await self._blobs.delete(orphans)
        return len(orphans)


_STATS_ROWS_MAX: Final = 1_000
_STATS_TICK_SECONDS: Final = 60.0


class StatsPruner(Loop):
    """Deletes old statistics, hourly usage, usage reports and Stripe events."""

    name: ClassVar[str] = "stats pruner"

    async def tick(self) -> float:
        deleted = await roll_ups.prune(self._db, ROLL_UPS_KEPT_SECONDS, _STATS_ROWS_MAX)
        hours = await usage.prune_hours(self._db, USAGE_HOURS_KEPT_DAYS, _STATS_ROWS_MAX)
        reports = await usage.prune_reports(self._db, USAGE_REPORTS_KEPT_DAYS, _STATS_ROWS_MAX)
        events = await billing.prune_meter_events(self._db, USAGE_HOURS_KEPT_DAYS, _STATS_ROWS_MAX)
        return (
            0.0 if max(deleted, hours, reports, events) >= _STATS_ROWS_MAX else _STATS_TICK_SECONDS
        )


_WEBHOOK_ROWS_MAX: Final = 500
_WEBHOOK_TICK_SECONDS: Final = 5.0


class WebhookPruner(Loop):
    """Deletes old deliveries and receivers, and ends pending deliveries to disabled receivers."""

    name: ClassVar[str] = "webhook pruner"

    async def tick(self) -> float:
        await webhooks.delete_unpulled(self._db)
        ended = await webhooks.end_disabled(self._db, _WEBHOOK_ROWS_MAX)
        pruned = await webhooks.prune(self._db, _WEBHOOK_ROWS_MAX)
        more = _WEBHOOK_ROWS_MAX in (ended, pruned.deliveries, pruned.targets)
        return 0.0 if more else _WEBHOOK_TICK_SECONDS


_METRICS_TICK_SECONDS: Final = 30.0


class MetricsFolder(Loop):
    """Merges rows of ``process_metrics``, so that there are about as many as processes."""

    name: ClassVar[str] = "metrics folder"

    async def tick(self) -> float:
        folded = await fold(self._db)
        return 0.0 if folded == FOLDED_ROWS_MAX else _METRICS_TICK_SECONDS
