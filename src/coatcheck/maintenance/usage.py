"""Aggregates usage, and creates a usage report when a day, week or month has ended."""

from __future__ import annotations

import logging
from typing import ClassVar, Final

from coatcheck.core.queries import usage, usage_reports
from coatcheck.db.connection import Connection
from coatcheck.db.notifications import CHANGED, Notifier
from coatcheck.domain.limits import USAGE_REPORT_AFTER_SECONDS, USAGE_REPORT_DAYS_BACK
from coatcheck.maintenance.loop import Loop

_log = logging.getLogger(__name__)

_ROWS_MAX: Final = 1_000
_ROLLUP_TICK_SECONDS: Final = 0.2


class UsageRollup(Loop):
    """Adds the usage of ended jobs to the sums by day and hour."""

    name: ClassVar[str] = "usage roll-up"

    def __init__(self, db: Connection, notifier: Notifier) -> None:
        super().__init__(db)
        self._notifier = notifier

    async def tick(self) -> float:
        rolled_up = await usage.roll_up(self._db, _ROWS_MAX)
        changed = {group.hex for group in rolled_up.groups}
        if changed:
            self._notifier.notify(CHANGED, changed)
        return 0.0 if rolled_up.deltas == _ROWS_MAX else _ROLLUP_TICK_SECONDS


_REPORTS_MAX: Final = 100
_REPORT_TICK_SECONDS: Final = 900.0
PERIODS: Final = {"daily": "day", "weekly": "week", "monthly": "month"}


class UsageReporter(Loop):
    """Creates the missing usage reports. ``schedule`` is a key of ``PERIODS``."""

    name: ClassVar[str] = "usage reporter"

    def __init__(self, db: Connection, schedule: str) -> None:
        super().__init__(db)
        self._period = PERIODS[schedule]

    async def tick(self) -> float:
        made = await usage_reports.make(
            self._db,
            self._period,
            rows_max=_REPORTS_MAX,
            after_seconds=USAGE_REPORT_AFTER_SECONDS,
            days_back=USAGE_REPORT_DAYS_BACK,
        )
        if made:
            _log.info("created %d usage reports, each for a %s", made, self._period)
        return 0.0 if made >= _REPORTS_MAX else _REPORT_TICK_SECONDS
