"""The three lanes, and what each promises."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Lane(StrEnum):
    """How urgent a job is. Each lane has slots, retries and lease times of its own."""

    URGENT = "urgent"
    STANDARD = "standard"
    BULK = "bulk"


@dataclass(frozen=True, slots=True)
class LanePolicy:
    """How a lane treats its jobs.

    ``retries`` is how often a failed job is tried again; ``ack_seconds`` how long its worker may be
    silent before the job is taken from it; ``concurrency`` how many of the lane's jobs one worker
    runs at a time, whatever the other lanes do; ``reserved_percent`` how many of these slots are
    kept for organisations that hold none.
    """

    retries: int
    ack_seconds: float
    concurrency: int
    reserved_percent: float = 12.5

    @property
    def reserved(self) -> int:
        """Slots that are kept: at least one, unless there is only one or none is wanted."""
        if not self.reserved_percent or self.concurrency < 2:
            return 0
        return max(1, int(self.concurrency * self.reserved_percent / 100))


DEFAULT_POLICIES: Final = MappingProxyType(
    {
        Lane.URGENT: LanePolicy(retries=5, ack_seconds=30.0, concurrency=32),
        Lane.STANDARD: LanePolicy(retries=3, ack_seconds=120.0, concurrency=32),
        Lane.BULK: LanePolicy(retries=3, ack_seconds=300.0, concurrency=16),
    }
)
