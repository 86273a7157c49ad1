"""Deletes what has outlived its retention: jobs, inputs, artifacts, orphan blobs, statistics."""

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
    inputs,
    maintenance,
    reports,
    roll_ups,
    stripe_meter,
    usage,
    usage_reports,
    webhook_endpoints,
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

_PRUNE_ROWS_MAX = 500
_PRUNE_LOOK_SECONDS = 5.0


class Pruner(Loop):
    name: ClassVar[str] = "pruner"

    def __init__(self, db: Connection, blobs: BlobContainer) -> None:
        super().__init__(db)
        self._shredder = ArtifactDeleter(db, blobs)

    async def tick(self) -> float:
        pruned = await maintenance.prune(self._db, _PRUNE_ROWS_MAX)
        if pruned.blobs:
            crash_point("prune.rows_deleted_blobs_not")
        await self._shredder.shred(pruned.blobs)
        return 0.0 if pruned.jobs == _PRUNE_ROWS_MAX else _PRUNE_LOOK_SECONDS


_log = logging.getLogger(__name__)
_ARTIFACT_ROWS_MAX: Final = 200
_ARTIFACT_LOOK_SECONDS: Final = 5.0
_GRACE_SECONDS: Final = 5.0
"""Whoever takes an artifact's row away deletes its blob as well, and is given time to."""


class ArtifactCleanup(Loop):
    """The second of two that delete an artifact's blob. The first is who took its row away: the
    pruner, a worker that replaced it, a server whose caller asked for it."""

    name: ClassVar[str] = "artifact keeper"

    def __init__(
        self, db: Connection, blobs: BlobContainer, *, grace_seconds: float = _GRACE_SECONDS
    ) -> None:
        super().__init__(db)
        self._shredder = ArtifactDeleter(db, blobs)
        self._grace_seconds = grace_seconds

    async def tick(self) -> float:
        await self._delete_what_is_left()
        forgotten = await artifacts.forget(self._db, _ARTIFACT_ROWS_MAX)
        return 0.0 if forgotten == _ARTIFACT_ROWS_MAX else _ARTIFACT_LOOK_SECONDS

    async def _delete_what_is_left(self) -> None:
        last = None
        while True:
            page = await artifacts.left(
                self._db, _ARTIFACT_ROWS_MAX, grace_seconds=self._grace_seconds, after=last
            )
            if page:
                gone = await self._shredder.shred([left.blob for left in page])
                _log.info("deleted %d of %d artifacts that were left behind", gone, len(page))
            if len(page) < _ARTIFACT_ROWS_MAX:
                return
            last = page[-1]


_INPUT_ROWS_MAX: Final = 200
_INPUT_LOOK_SECONDS: Final = 1.0


class InputExpirer(Loop):
    """The second of three that delete an input. The first is the worker that ended its job, at once
    (worker/input_disposal.py); the third is the sweeper, for blobs that no record tells of."""

    name: ClassVar[str] = "forgetter"

    def __init__(self, db: Connection, blobs: BlobContainer) -> None:
        super().__init__(db)
        self._shredder = InputDeleter(db, blobs)

    async def tick(self) -> float:
        await self._delete_what_is_due()
        closed = await inputs.close_pointers(self._db, _INPUT_ROWS_MAX)
        forgotten = await inputs.forget(self._db, _INPUT_ROWS_MAX)
        return 0.0 if _INPUT_ROWS_MAX in (closed, forgotten) else _INPUT_LOOK_SECONDS

    async def _delete_what_is_due(self) -> None:
        page = await inputs.due(self._db, _INPUT_ROWS_MAX)
        while page:
            gone = await self._shredder.shred([(due.copy, due.mechanism) for due in page])
            why = Counter(due.mechanism for due in page)
            _log.info(
                "deleted %d of %d inputs that were due",
                gone,
                len(page),
                extra={str(mechanism): count for mechanism, count in why.items()},
            )
            if len(page) < _INPUT_ROWS_MAX:
                return
            page = await inputs.due(self._db, _INPUT_ROWS_MAX, after=page[-1])


_ORPHAN_LOOK_SECONDS = 60.0
ARTIFACT_GRACE: Final = timedelta(hours=1)
INPUT_GRACE: Final = timedelta(minutes=30)
"""An upload may take a quarter of an hour from its first piece to its row."""

Owned = tuple[UUID, str]
"""What a blob names as its owner, and the key by which a row would know it."""


@dataclass(frozen=True, slots=True)
class BlobKind:
    """One kind of blob: where it lies, how old an orphan must be, and who would know it."""

    name: str
    prefix: Callable[[UUID], str]
    grace: timedelta
    owned: Callable[[str], Owned | None]
    known: Callable[[Connection, Sequence[Owned]], Awaitable[set[str]]]


def whole(owner_of: Callable[[str], UUID | None]) -> Callable[[str], Owned | None]:
    """For what is one blob, and not in pieces: a row knows it by its own key."""

    def owned(key: str) -> Owned | None:
        owner = owner_of(key)
        return None if owner is None else (owner, key)

    return owned


class OrphanBlobSweeper(Loop):
    """Sweeps what jobs are made of, and make. A product sweeps blobs of its own with a class of its
    own, which has other ``kinds``.

    ``grace`` is how old a blob of any kind must be, if not what is usual for its kind: between its
    upload and its row lies a moment.
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
        return _ORPHAN_LOOK_SECONDS

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
_STATS_LOOK_SECONDS: Final = 60.0


class StatsPruner(Loop):
    name: ClassVar[str] = "roll-up keeper"

    async def tick(self) -> float:
        deleted = await roll_ups.prune(self._db, ROLL_UPS_KEPT_SECONDS, _STATS_ROWS_MAX)
        hours = await usage.prune_hours(self._db, USAGE_HOURS_KEPT_DAYS, _STATS_ROWS_MAX)
        reports = await usage_reports.prune(self._db, USAGE_REPORTS_KEPT_DAYS, _STATS_ROWS_MAX)
        events = await stripe_meter.prune(self._db, USAGE_HOURS_KEPT_DAYS, _STATS_ROWS_MAX)
        return (
            0.0 if max(deleted, hours, reports, events) >= _STATS_ROWS_MAX else _STATS_LOOK_SECONDS
        )


_WEBHOOK_ROWS_MAX: Final = 500
_WEBHOOK_LOOK_SECONDS: Final = 5.0


class WebhookPruner(Loop):
    """It also ends what is still to be told to those who want nothing any more."""

    name: ClassVar[str] = "webhook keeper"

    async def tick(self) -> float:
        await webhook_endpoints.delete_unpulled(self._db)
        ended = await webhooks.end_disabled(self._db, _WEBHOOK_ROWS_MAX)
        pruned = await webhooks.prune(self._db, _WEBHOOK_ROWS_MAX)
        more = _WEBHOOK_ROWS_MAX in (ended, pruned.deliveries, pruned.targets)
        return 0.0 if more else _WEBHOOK_LOOK_SECONDS


_METRICS_LOOK_SECONDS: Final = 30.0


class MetricsFolder(Loop):
    """Keeps the rows of ``process_metrics`` about as many as there are processes."""

    name: ClassVar[str] = "metrics folder"

    async def tick(self) -> float:
        folded = await fold(self._db)
        return 0.0 if folded == FOLDED_ROWS_MAX else _METRICS_LOOK_SECONDS
