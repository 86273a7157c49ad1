"""Deletes jobs whose retention has ended, in small chunks, and then their artifacts' blobs."""

from __future__ import annotations

from typing import ClassVar

from coatcheck.blobs import BlobContainer
from coatcheck.crash import crash_point
from coatcheck.store import upkeep
from coatcheck.store.line import Line
from coatcheck.upkeep.loop import Loop

_ROWS_MAX = 500
_LOOK_SECONDS = 5.0


class Pruner(Loop):
    name: ClassVar[str] = "pruner"

    def __init__(self, line: Line, blobs: BlobContainer) -> None:
        super().__init__(line)
        self._blobs = blobs

    async def tick(self) -> float:
        pruned = await upkeep.prune(self._line, _ROWS_MAX)
        if pruned.blob_keys:
            crash_point("prune.rows_deleted_blobs_not")
        await self._blobs.delete(pruned.blob_keys)
        return 0.0 if pruned.jobs == _ROWS_MAX else _LOOK_SECONDS
