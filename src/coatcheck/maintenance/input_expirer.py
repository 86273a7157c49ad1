"""Deletes the inputs of jobs that have ended, and those whose time to live has passed."""

from __future__ import annotations

import logging
from collections import Counter
from typing import ClassVar, Final

from coatcheck.blobs import BlobContainer
from coatcheck.core.input_deleter import Shredder
from coatcheck.core.queries import inputs
from coatcheck.db.connection import Line
from coatcheck.maintenance.loop import Loop

_log = logging.getLogger(__name__)
_ROWS_MAX: Final = 200
_LOOK_SECONDS: Final = 1.0


class Forgetter(Loop):
    """The second of three that delete an input. The first is the worker that ended its job, at once
    (worker/input_disposal.py); the third is the sweeper, for blobs that no record tells of."""

    name: ClassVar[str] = "forgetter"

    def __init__(self, line: Line, blobs: BlobContainer) -> None:
        super().__init__(line)
        self._shredder = Shredder(line, blobs)

    async def tick(self) -> float:
        await self._delete_what_is_due()
        closed = await inputs.close_pointers(self._line, _ROWS_MAX)
        forgotten = await inputs.forget(self._line, _ROWS_MAX)
        return 0.0 if _ROWS_MAX in (closed, forgotten) else _LOOK_SECONDS

    async def _delete_what_is_due(self) -> None:
        page = await inputs.due(self._line, _ROWS_MAX)
        while page:
            gone = await self._shredder.shred([(due.copy, due.mechanism) for due in page])
            why = Counter(due.mechanism for due in page)
            _log.info(
                "deleted %d of %d inputs that were due",
                gone,
                len(page),
                extra={str(mechanism): count for mechanism, count in why.items()},
            )
            if len(page) < _ROWS_MAX:
                return
            page = await inputs.due(self._line, _ROWS_MAX, after=page[-1])
