"""Deletes orphan blobs: those whose row was never written, or went before they did."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar, Final
from uuid import UUID

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import artifacts_of, input_of_piece, inputs_of, job_of
from coatcheck.core.queries import inputs, reports
from coatcheck.core.queries import maintenance as upkeep
from coatcheck.db.connection import Line
from coatcheck.maintenance.loop import Loop
from coatcheck.telemetry import metrics

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 60.0
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
    known: Callable[[Line, Sequence[Owned]], Awaitable[set[str]]]


def whole(owner_of: Callable[[str], UUID | None]) -> Callable[[str], Owned | None]:
    """For what is one blob, and not in pieces: a row knows it by its own key."""

    def owned(key: str) -> Owned | None:
        owner = owner_of(key)
        return None if owner is None else (owner, key)

    return owned


class Sweeper(Loop):
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

    def __init__(self, line: Line, blobs: BlobContainer, *, grace: timedelta | None = None) -> None:
        super().__init__(line)
        self._blobs = blobs
        self._deployment: UUID | None = None
        self._kinds = [kind if grace is None else replace(kind, grace=grace) for kind in self.kinds]

    async def tick(self) -> float:
        if self._deployment is None:
            self._deployment = await reports.deployment(self._line)
        for kind in self._kinds:
            await self._sweep(kind, kind.prefix(self._deployment))
        return _LOOK_SECONDS

    async def _sweep(self, kind: BlobKind, prefix: str) -> None:
        limit = await upkeep.clock(self._line) - kind.grace
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
        known = await kind.known(self._line, [*set(owned.values())])
        orphans = [key for key, (_, owner_key) in owned.items() if owner_key not in known]
        await self._blobs.delete(orphans)
        return len(orphans)
