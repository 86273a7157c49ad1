"""The maintenance loop that removes deleted voices, and uploads that were never completed."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final

from coatcheck.blobs import BlobContainer
from coatcheck.db.connection import Connection
from coatcheck.maintenance.loop import Loop
from coatcheck.products.speech import repository
from coatcheck.products.speech.model import OF_USERS

UPLOAD_SECONDS_MAX: Final = 3_600.0
"""No upload takes this long: its process must have died."""
_ROWS_MAX: Final = 100
_POLL_SECONDS: Final = 2.0
_UNFINISHED_POLL_SECONDS: Final = 3_600.0
_UNFINISHED_AGE: Final = timedelta(days=1)


class VoiceCleanup(Loop):
    """Deletes the blobs and rows of deleted voices and of abandoned uploads."""

    name: ClassVar[str] = "voice cleanup"

    def __init__(self, db: Connection, blobs: BlobContainer) -> None:
        super().__init__(db)
        self._blobs = blobs
        self._unfinished_at = time.monotonic() + _UNFINISHED_POLL_SECONDS

    async def tick(self) -> float:
        if time.monotonic() >= self._unfinished_at:
            await self.drop_unfinished()
        due = await repository.voices_to_remove(self._db, UPLOAD_SECONDS_MAX, _ROWS_MAX)
        # These voices are no longer visible. Blobs are deleted before rows: while there is a row,
        # the deletion is tried again.
        await self._blobs.delete([voice.blob_key for voice in due])
        if due:
            await repository.delete_voice_rows(self._db, due)
        return 0.0 if len(due) == _ROWS_MAX else _POLL_SECONDS

    async def drop_unfinished(self) -> None:
        """Delete the partial files of uploads whose process was killed.

        This walks through all files of the store, and is not urgent.
        """
        for prefix in OF_USERS:
            await self._blobs.drop_unfinished(datetime.now(UTC) - _UNFINISHED_AGE, prefix)
        self._unfinished_at = time.monotonic() + _UNFINISHED_POLL_SECONDS
