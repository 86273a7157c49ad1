"""Deletes orphan blobs: those whose row was never written, or went before they did."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Final
from uuid import UUID

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import artifacts_of, input_of_piece, inputs_of, job_of
from coatcheck.store import inputs, reports, upkeep
from coatcheck.store.line import Line
from coatcheck.upkeep.loop import Loop

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 60.0
ARTIFACT_GRACE: Final = timedelta(hours=1)
INPUT_GRACE: Final = timedelta(minutes=30)
"""An upload may take a quarter of an hour from its first piece to its row."""

Owned = tuple[UUID, str]
"""The job that a blob names, and the key by which a row would know it."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of blob: where it lies, how old an orphan must be, and who would know it."""

    name: str
    prefix: Callable[[UUID], str]
    grace: timedelta
    owned: Callable[[str], Owned | None]
    known: Callable[[Line, Sequence[Owned]], Awaitable[set[str]]]


def _artifact(key: str) -> Owned | None:
    job = job_of(key)
    return None if job is None else (job, key)


class Sweeper(Loop):
    """``grace`` is how old a blob of any kind must be, if not what is usual for its kind: between
    its upload and its row lies a moment."""

    name: ClassVar[str] = "sweeper"

    def __init__(self, line: Line, blobs: BlobContainer, *, grace: timedelta | None = None) -> None:
        super().__init__(line)
        self._blobs = blobs
        self._deployment: UUID | None = None
        self._kinds = (
            _Kind(
                "artifacts",
                artifacts_of,
                ARTIFACT_GRACE if grace is None else grace,
                _artifact,
                reports.known_blobs,
            ),
            _Kind(
                "inputs",
                inputs_of,
                INPUT_GRACE if grace is None else grace,
                input_of_piece,
                inputs.known_inputs,
            ),
        )

    async def tick(self) -> float:
        if self._deployment is None:
            self._deployment = await reports.deployment(self._line)
        for kind in self._kinds:
            await self._sweep(kind, kind.prefix(self._deployment))
        return _LOOK_SECONDS

    async def _sweep(self, kind: _Kind, prefix: str) -> None:
        limit = await upkeep.clock(self._line) - kind.grace
        swept = 0
        async for keys in self._blobs.older_than(limit, prefix):
            swept += await self._delete_orphans(kind, keys)
        unfinished = await self._blobs.drop_unfinished(limit, prefix)
        if swept or unfinished:
            _log.info(
                "swept %d orphan blobs and %d unfinished uploads of %s",
                swept,
                unfinished,
                kind.name,
            )

    async def _delete_orphans(self, kind: _Kind, keys: list[str]) -> int:
        owned = {key: owner for key in keys if (owner := kind.owned(key)) is not None}
        if not owned:
            return 0
        known = await kind.known(self._line, [*set(owned.values())])
        orphans = [key for key, (_, owner_key) in owned.items() if owner_key not in known]
        await self._blobs.delete(orphans)
        return len(orphans)
