"""Deletes orphan blobs of batches: staged lists, lists in pieces, and exports."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, Final

from coatcheck.blobs.keys import (
    export_of,
    exports_of,
    list_of_piece,
    lists_of,
    upload_of,
    uploads_of,
)
from coatcheck.core.queries import uploads
from coatcheck.maintenance.orphan_blobs import BlobKind, Sweeper, whole
from coatcheck.products.batches.queries import exports as batch_exports
from coatcheck.products.batches.queries import ingest as batch_ingest

UPLOAD_GRACE: Final = timedelta(hours=1)
"""Its row comes first; but the slowest PUT that is waited for adds to its file so seldom."""
LIST_GRACE: Final = timedelta(hours=7)
"""A list may take six hours from its first piece to its row."""
EXPORT_GRACE: Final = timedelta(hours=1)
_ROWS_MAX: Final = 500


class BatchSweeper(Sweeper):
    """Deletes the rows of staged lists as well, once nobody can use them any more."""

    name: ClassVar[str] = "batch sweeper"
    kinds: ClassVar[Sequence[BlobKind]] = (
        BlobKind("uploads", uploads_of, UPLOAD_GRACE, whole(upload_of), uploads.known_uploads),
        BlobKind("lists", lists_of, LIST_GRACE, list_of_piece, batch_ingest.known_lists),
        BlobKind("exports", exports_of, EXPORT_GRACE, whole(export_of), batch_exports.known),
    )

    async def tick(self) -> float:
        pause = await super().tick()
        await uploads.forget(self._line, _ROWS_MAX)
        return pause
