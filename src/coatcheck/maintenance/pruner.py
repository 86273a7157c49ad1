"""Deletes jobs whose retention has ended, in small chunks, and then their artifacts' blobs."""

from __future__ import annotations

from typing import ClassVar

from coatcheck.blobs import BlobContainer
from coatcheck.core.artifact_deleter import ArtifactShredder
from coatcheck.core.queries import maintenance as upkeep
from coatcheck.crash import crash_point
from coatcheck.db.connection import Line
from coatcheck.maintenance.loop import Loop

_ROWS_MAX = 500
_LOOK_SECONDS = 5.0


class Pruner(Loop):
    name: ClassVar[str] = "pruner"

    def __init__(self, line: Line, blobs: BlobContainer) -> None:
        super().__init__(line)
        self._shredder = ArtifactShredder(line, blobs)

    async def tick(self) -> float:
        pruned = await upkeep.prune(self._line, _ROWS_MAX)
        if pruned.blobs:
            crash_point("prune.rows_deleted_blobs_not")
        await self._shredder.shred(pruned.blobs)
        return 0.0 if pruned.jobs == _ROWS_MAX else _LOOK_SECONDS
