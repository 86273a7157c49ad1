"""Makes a report of each organisation's usage when a day, week or month has ended.

A report is a row whose key is the organisation and the period, written together with its webhook
deliveries by one statement: it is made once, whichever process is elected, wherever one dies, and
however often this ticks. Periods without a report are looked for, so nothing has to be remembered
over a downtime.
"""

from __future__ import annotations

import logging
from typing import ClassVar, Final

from coatcheck.core.queries import usage_reports
from coatcheck.db.connection import Line
from coatcheck.domain.limits import USAGE_REPORT_AFTER_SECONDS, USAGE_REPORT_DAYS_BACK
from coatcheck.maintenance.loop import Loop

_log = logging.getLogger(__name__)
_REPORTS_MAX: Final = 100
_LOOK_SECONDS: Final = 900.0
PERIODS: Final = {"daily": "day", "weekly": "week", "monthly": "month"}


class UsageReporter(Loop):
    """``schedule`` is one of ``PERIODS``."""

    name: ClassVar[str] = "usage reporter"

    def __init__(self, line: Line, schedule: str) -> None:
        super().__init__(line)
        self._period = PERIODS[schedule]

    async def tick(self) -> float:
        made = await usage_reports.make(
            self._line,
            self._period,
            rows_max=_REPORTS_MAX,
            after_seconds=USAGE_REPORT_AFTER_SECONDS,
            days_back=USAGE_REPORT_DAYS_BACK,
        )
        if made:
            _log.info("made %d reports of usage, each of a %s", made, self._period)
        return 0.0 if made >= _REPORTS_MAX else _LOOK_SECONDS
