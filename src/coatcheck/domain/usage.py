"""Usage records of an organisation's jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

import msgspec

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
    """The usage of one endpoint's jobs with one queue key that ended on one day (UTC), or in the
    ``hour`` that begins then.

    ``run_seconds`` is the handlers' run time over all attempts; ``attempts`` counts like
    ``JobView.attempts``.
    """

    day: date
    endpoint: str
    queue_key: str
    completed: int
    failed: int
    cancelled: int
    attempts: int
    run_seconds: float
    payload_bytes: int
    result_bytes: int
    hour: datetime | None = None

    @property
    def flow(self) -> str:
        """The old name of ``queue_key``, removed with 0.1.0."""
        return self.queue_key

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


class UsageReportItem(msgspec.Struct, frozen=True):
    """The usage of one endpoint's jobs with one queue key in a report's period. JSON calls the
    queue key ``flow``."""

    endpoint: str
    queue_key: str = msgspec.field(name="flow")
    jobs: int
    completed: int
    failed: int
    cancelled: int
    attempts: int
    run_seconds: float
    payload_bytes: int
    result_bytes: int

    @property
    def flow(self) -> str:
        """The old name of ``queue_key``, removed with 0.1.0."""
        return self.queue_key


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
