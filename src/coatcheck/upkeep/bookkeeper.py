"""Sums up what jobs have used, so that reading a year of it is reading a row a day."""

from __future__ import annotations

from typing import ClassVar

from coatcheck.store import usage
from coatcheck.upkeep.loop import Loop

_ROWS_MAX = 1_000
_LOOK_SECONDS = 2.0


class Bookkeeper(Loop):
    name: ClassVar[str] = "usage roll-up"

    async def tick(self) -> float:
        moved = await usage.roll_up(self._line, _ROWS_MAX)
        return 0.0 if moved == _ROWS_MAX else _LOOK_SECONDS
