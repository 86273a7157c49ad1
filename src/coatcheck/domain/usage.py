"""What an organisation's jobs have used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

METERED: Final = (
    "jobs",
    "completed",
    "attempts",
    "run_seconds",
    "payload_bytes",
    "result_bytes",
)
"""What of an hour can be sent to Stripe; run_seconds as a whole number."""


class Granularity(StrEnum):
    """The step in which usage is summed up."""

    DAY = "day"
    HOUR = "hour"


@dataclass(slots=True, frozen=True)
class UsageRow:
    """What the jobs of one endpoint and flow used that ended on one day (UTC), or in the
    ``hour`` that begins then.

    ``run_seconds`` is the time in the handler over all attempts; ``attempts`` counts as
    ``JobView.attempts`` does.
    """

    day: date
    endpoint: str
    flow: str
    completed: int
    failed: int
    cancelled: int
    attempts: int
    run_seconds: float
    payload_bytes: int
    result_bytes: int
    hour: datetime | None = None

    @property
    def jobs(self) -> int:
        return self.completed + self.failed + self.cancelled


@dataclass(slots=True, frozen=True)
class UsageTotals:
    """What jobs used, together."""

    jobs: int
    completed: int
    failed: int
    cancelled: int
    attempts: int
    run_seconds: float
    payload_bytes: int
    result_bytes: int


@dataclass(slots=True, frozen=True)
class UsageReportItem:
    """What the jobs of one endpoint and flow used in a report's period."""

    endpoint: str
    flow: str
    jobs: int
    completed: int
    failed: int
    cancelled: int
    attempts: int
    run_seconds: float
    payload_bytes: int
    result_bytes: int


@dataclass(slots=True, frozen=True)
class UsageReport:
    """What an organisation used from ``first_day`` to ``last_day`` (UTC), a day, week or month that
    had ended when it was made. ``items`` are left out of a list."""

    id: UUID
    period: str
    first_day: date
    last_day: date
    created_at: datetime
    totals: UsageTotals
    items: Sequence[UsageReportItem]
