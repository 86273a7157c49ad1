"""Puts jobs into the queue when their time comes: delayed ones, and those to be retried."""

from __future__ import annotations

from typing import ClassVar

from coatcheck.core.queries import maintenance as upkeep
from coatcheck.db.channels import CHANGED, READY
from coatcheck.db.connection import Line
from coatcheck.db.notify import Notifier
from coatcheck.maintenance.loop import Loop

_ROWS_MAX = 500
_LOOK_SECONDS_MAX = 1.0
_LOOK_SECONDS_MIN = 0.01


class Stager(Loop):
    name: ClassVar[str] = "stager"

    def __init__(self, line: Line, notifier: Notifier) -> None:
        super().__init__(line)
        self._notifier = notifier

    async def tick(self) -> float:
        staged = await upkeep.stage(self._line, _ROWS_MAX)
        if staged:
            self._notifier.say(READY, {job.endpoint for job in staged})
            self._notifier.say(CHANGED, {job.uuid.hex for job in staged})
        if len(staged) == _ROWS_MAX:
            return 0.0
        due = await upkeep.next_due_seconds(self._line)
        if due is None:
            return _LOOK_SECONDS_MAX
        return min(_LOOK_SECONDS_MAX, max(_LOOK_SECONDS_MIN, due))
