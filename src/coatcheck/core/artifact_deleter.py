"""Deletes the blobs of artifacts that are gone, and then says so in their records.

In this order, as with inputs (``shredder.py``): a crash between the two leaves a record that says
"still there" of a blob that is gone, and the next to look closes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from coatcheck.blobs import BlobContainer
from coatcheck.core.blob_deletions import Deletions
from coatcheck.core.queries import artifacts
from coatcheck.db.connection import Line
from coatcheck.db.errors import retried
from coatcheck.domain.artifacts import DoomedBlob


class ArtifactShredder:
    """Deletes artifacts' blobs, many at a time. What it cannot delete is tried again by upkeep
    (``maintenance/artifact_cleanup.py``)."""

    def __init__(self, line: Line, blobs: BlobContainer) -> None:
        self._line = line
        self._blobs = blobs
        self._deletions = Deletions("an artifact", self._delete)

    async def shred(self, doomed: Sequence[DoomedBlob]) -> int:
        """Delete these blobs. How many are gone now."""
        gone = await self._deletions.of(doomed)
        if gone:
            await retried(lambda: artifacts.close(self._line, gone))
        return len(gone)

    async def _delete(self, blob: DoomedBlob) -> None:
        await self._blobs.delete([blob.blob_key])
