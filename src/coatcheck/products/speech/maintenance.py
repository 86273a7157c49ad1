"""Removes voices that were deleted, and uploads of voices that never became whole."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.keys import OF_USERS
from coatcheck.db.connection import Connection
from coatcheck.maintenance.loop import Loop
from coatcheck.products.speech import queries

UPLOAD_SECONDS_MAX: Final = 3_600.0
"""No upload takes as long: whoever made it is gone."""
_ROWS_MAX: Final = 100
_LOOK_SECONDS: Final = 2.0
_UNFINISHED_LOOK_SECONDS: Final = 3_600.0
_UNFINISHED_AGE: Final = timedelta(days=1)


class VoiceCleanup(Loop):
    name: ClassVar[str] = "voice keeper"

    def __init__(self, db: Connection, blobs: BlobContainer) -> None:
        super().__init__(db)
        self._blobs = blobs
        self._unfinished_at = time.monotonic() + _UNFINISHED_LOOK_SECONDS

    async def tick(self) -> float:
        if time.monotonic() >= self._unfinished_at:
            await self.drop_unfinished()
        due = await queries.voices_to_remove(self._db, UPLOAD_SECONDS_MAX, _ROWS_MAX)
        # Nobody is shown them any more. Blobs go first: while there is a row, it is tried again.
        await self._blobs.delete([voice.blob_key for voice in due])
        if due:
            await queries.forget_voices(self._db, due)
        return 0.0 if len(due) == _ROWS_MAX else _LOOK_SECONDS

    async def drop_unfinished(self) -> None:
        """Delete what uploads of a process that was killed have left in a folder. It is a walk
        through all of them, and not urgent."""
        for prefix in OF_USERS:
            await self._blobs.drop_unfinished(datetime.now(UTC) - _UNFINISHED_AGE, prefix)
        self._unfinished_at = time.monotonic() + _UNFINISHED_LOOK_SECONDS
