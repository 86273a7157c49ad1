"""Usage records of an organisation's jobs."""

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
"""The measures of an hour that can be sent to Stripe; run_seconds as a whole number."""


class Granularity(StrEnum):
    """The interval that usage is summed over."""

    DAY = "day"
    HOUR = "hour"


@dataclass(slots=True, frozen=True)
class UsageRow:
    """The usage of one endpoint's and flow's jobs that ended on one day (UTC), or in the ``hour``
    that begins then.

    ``run_seconds`` is the handlers' run time over all attempts; ``attempts`` counts like
    ``JobView.attempts``.
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
    """The total usage of jobs."""

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
    """The usage of one endpoint's and flow's jobs in a report's period."""

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
    """An organisation's usage from ``first_day`` to ``last_day`` (UTC), a completed day, week or
    month. Lists omit ``items``."""

    id: UUID
    period: str
    first_day: date
    last_day: date
    created_at: datetime
    totals: UsageTotals
    items: Sequence[UsageReportItem]
