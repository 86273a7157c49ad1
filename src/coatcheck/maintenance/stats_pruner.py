"""Deletes roll-ups that nobody looks at any more: minutes after hours, hours after a month; and the
hourly sums of usage after two. And reports of usage, after more than a year."""

from __future__ import annotations

from typing import ClassVar, Final

from coatcheck.core.queries import roll_ups, stripe_meter, usage, usage_reports
from coatcheck.domain.limits import (
    ROLL_UPS_KEPT_SECONDS,
    USAGE_HOURS_KEPT_DAYS,
    USAGE_REPORTS_KEPT_DAYS,
)
from coatcheck.maintenance.loop import Loop

_ROWS_MAX: Final = 1_000
_LOOK_SECONDS: Final = 60.0


class RollUpKeeper(Loop):
    name: ClassVar[str] = "roll-up keeper"

    async def tick(self) -> float:
        deleted = await roll_ups.prune(self._line, ROLL_UPS_KEPT_SECONDS, _ROWS_MAX)
        hours = await usage.prune_hours(self._line, USAGE_HOURS_KEPT_DAYS, _ROWS_MAX)
        reports = await usage_reports.prune(self._line, USAGE_REPORTS_KEPT_DAYS, _ROWS_MAX)
        events = await stripe_meter.prune(self._line, USAGE_HOURS_KEPT_DAYS, _ROWS_MAX)
        return 0.0 if max(deleted, hours, reports, events) >= _ROWS_MAX else _LOOK_SECONDS
