"""Adds the counts of processes that have ended to those of all that are gone."""

from __future__ import annotations

from typing import ClassVar, Final

from coatcheck.core.process_metrics import FOLDED_ROWS_MAX, fold
from coatcheck.maintenance.loop import Loop

_LOOK_SECONDS: Final = 30.0


class MetricsFolder(Loop):
    """Keeps the rows of ``process_metrics`` about as many as there are processes."""

    name: ClassVar[str] = "metrics folder"

    async def tick(self) -> float:
        folded = await fold(self._line)
        return 0.0 if folded == FOLDED_ROWS_MAX else _LOOK_SECONDS
