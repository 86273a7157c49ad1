"""Deletes jobs whose retention has ended, in small chunks, and then their artifacts' blobs; and
what says of chats that their callers have left, once no retry may join them any more."""

from __future__ import annotations

from typing import ClassVar

from coatcheck.blobs import BlobContainer
from coatcheck.crash import crash_point
from coatcheck.engine.artifact_shredder import ArtifactShredder
from coatcheck.store import llm, upkeep
from coatcheck.store.line import Line
from coatcheck.upkeep.loop import Loop

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
        forgotten = await llm.forget_abandoned(self._line, _ROWS_MAX)
        return 0.0 if _ROWS_MAX in (pruned.jobs, forgotten) else _LOOK_SECONDS
