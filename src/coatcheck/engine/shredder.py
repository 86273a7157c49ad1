"""Deletes the blobs of inputs, and then says so in their records.

In this order: a crash between the two leaves a record that says "still there" of a blob that is
gone, and the next to look deletes nothing and closes the record. In the other order it would leave
a blob that nobody looks for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.pieces import delete_pieces
from coatcheck.crash import crash_point
from coatcheck.domain.ids import to_text
from coatcheck.domain.inputs import HeldCopy, Mechanism
from coatcheck.store import inputs
from coatcheck.store.faults import retried
from coatcheck.store.line import Line

_log = logging.getLogger(__name__)
_DELETIONS_AT_ONCE_MAX: Final = 8
_DELETION_SECONDS_MAX: Final = 30.0


class Shredder:
    """Deletes many at a time; one that cannot be deleted is logged, and does not hold up others."""

    def __init__(self, line: Line, blobs: BlobContainer) -> None:
        self._line = line
        self._blobs = blobs
        self._turns = asyncio.Semaphore(_DELETIONS_AT_ONCE_MAX)

    async def shred(self, copies: Sequence[tuple[HeldCopy, Mechanism]]) -> int:
        """Delete these blobs. How many are gone now."""
        deleted = await asyncio.gather(*(self._delete(copy) for copy, _ in copies))
        gone = [each for each, done in zip(copies, deleted, strict=True) if done]
        if gone:
            crash_point("input.blob_deleted_not_marked")
            await retried(lambda: inputs.mark_deleted(self._line, gone))
            crash_point("input.marked")
        return len(gone)

    async def _delete(self, copy: HeldCopy) -> bool:
        async with self._turns:
            try:
                async with asyncio.timeout(_DELETION_SECONDS_MAX):
                    await delete_pieces(self._blobs, copy.place)
            except Exception as error:  # noqa: BLE001 - of whatever kind: it is tried again
                # Its type alone: a store's message may quote its address or what it was sent.
                _log.warning(
                    "an input could not be deleted; it is tried again: %s",
                    type(error).__name__,
                    extra={"job_id": to_text(copy.job)},
                )
                return False
        return True
