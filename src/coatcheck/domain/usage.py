"""What an organisation's jobs have used."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum


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
