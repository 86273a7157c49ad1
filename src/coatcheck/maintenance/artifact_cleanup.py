"""Deletes the blobs of artifacts that whoever doomed them has left behind; forgets old records."""

from __future__ import annotations

import logging
from typing import ClassVar, Final

from coatcheck.blobs import BlobContainer
from coatcheck.core.artifact_deleter import ArtifactShredder
from coatcheck.core.queries import artifacts
from coatcheck.db.connection import Line
from coatcheck.maintenance.loop import Loop

_log = logging.getLogger(__name__)
_ROWS_MAX: Final = 200
_LOOK_SECONDS: Final = 5.0
_GRACE_SECONDS: Final = 5.0
"""Whoever takes an artifact's row away deletes its blob as well, and is given time to."""


class ArtifactKeeper(Loop):
    """The second of two that delete an artifact's blob. The first is who took its row away: the
    pruner, a worker that replaced it, a server whose caller asked for it."""

    name: ClassVar[str] = "artifact keeper"

    def __init__(
        self, line: Line, blobs: BlobContainer, *, grace_seconds: float = _GRACE_SECONDS
    ) -> None:
        super().__init__(line)
        self._shredder = ArtifactShredder(line, blobs)
        self._grace_seconds = grace_seconds

    async def tick(self) -> float:
        await self._delete_what_is_left()
        forgotten = await artifacts.forget(self._line, _ROWS_MAX)
        return 0.0 if forgotten == _ROWS_MAX else _LOOK_SECONDS

    async def _delete_what_is_left(self) -> None:
        last = None
        while True:
            page = await artifacts.left(
                self._line, _ROWS_MAX, grace_seconds=self._grace_seconds, after=last
            )
            if page:
                gone = await self._shredder.shred([left.blob for left in page])
                _log.info("deleted %d of %d artifacts that were left behind", gone, len(page))
            if len(page) < _ROWS_MAX:
                return
            last = page[-1]
