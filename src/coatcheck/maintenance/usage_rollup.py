"""Sums up what jobs have used, and counts by it how many jobs of each run have ended.

Reading a year of usage is then reading a row a day, and a run of a million jobs is one row.
"""

from __future__ import annotations

from typing import ClassVar, Final

from coatcheck.core.queries import usage
from coatcheck.db.channels import CHANGED
from coatcheck.db.connection import Line
from coatcheck.db.notify import Notifier
from coatcheck.maintenance.loop import Loop

_ROWS_MAX: Final = 1_000
_LOOK_SECONDS: Final = 0.2


class Bookkeeper(Loop):
    name: ClassVar[str] = "usage roll-up"

    def __init__(self, line: Line, notifier: Notifier) -> None:
        super().__init__(line)
        self._notifier = notifier

    async def tick(self) -> float:
        rolled_up = await usage.roll_up(self._line, _ROWS_MAX)
        changed = {group.hex for group in rolled_up.groups}
        if changed:
            self._notifier.say(CHANGED, changed)
        return 0.0 if rolled_up.deltas == _ROWS_MAX else _LOOK_SECONDS
