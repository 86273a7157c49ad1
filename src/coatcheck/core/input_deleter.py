"""Deletes the blobs of inputs, and then says so in their records.

In this order: a crash between the two leaves a record that says "still there" of a blob that is
gone, and the next to look deletes nothing and closes the record. In the other order it would leave
a blob that nobody looks for.
"""

from __future__ import annotations

from collections.abc import Sequence

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.pieces import delete_pieces
from coatcheck.core.blob_deletions import Deletions
from coatcheck.core.queries import inputs
from coatcheck.crash import crash_point
from coatcheck.db.connection import Line
from coatcheck.db.errors import retried
from coatcheck.domain.inputs import HeldCopy, Mechanism


class Shredder:
    """Deletes inputs, many at a time."""

    def __init__(self, line: Line, blobs: BlobContainer) -> None:
        self._line = line
        self._blobs = blobs
        self._deletions = Deletions("an input", self._delete)

    async def shred(self, copies: Sequence[tuple[HeldCopy, Mechanism]]) -> int:
        """Delete these blobs. How many are gone now."""
        deleted = {*await self._deletions.of([copy for copy, _ in copies])}
        gone = [each for each in copies if each[0] in deleted]
        if gone:
            crash_point("input.blob_deleted_not_marked")
            await retried(lambda: inputs.mark_deleted(self._line, gone))
            crash_point("input.marked")
        return len(gone)

    async def _delete(self, copy: HeldCopy) -> None:
        await delete_pieces(self._blobs, copy.place)
