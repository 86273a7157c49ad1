"""Removes exports whose time is up, and says of those that nobody will write that they failed."""

from __future__ import annotations

from typing import ClassVar, Final

from coatcheck.blobs import BlobContainer
from coatcheck.db.connection import Line
from coatcheck.maintenance.loop import Loop
from coatcheck.products.batches.queries import exports as batch_exports

_ROWS_MAX: Final = 100
_LOOK_SECONDS: Final = 2.0


class ExportKeeper(Loop):
    name: ClassVar[str] = "export keeper"

    def __init__(self, line: Line, blobs: BlobContainer, *, keep_seconds: int) -> None:
        super().__init__(line)
        self._blobs = blobs
        self._keep_seconds = keep_seconds

    async def tick(self) -> float:
        failed = await batch_exports.fail_lost(
            self._line, _ROWS_MAX, keep_seconds=self._keep_seconds
        )
        expired = await batch_exports.expired(self._line, _ROWS_MAX)
        # Nobody is shown them any more. Blobs go first: while there is a row, it is tried again.
        await self._blobs.delete([one.blob_key for one in expired if one.blob_key is not None])
        if expired:
            await batch_exports.delete(self._line, expired)
        return 0.0 if _ROWS_MAX in (failed, len(expired)) else _LOOK_SECONDS
