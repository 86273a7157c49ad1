"""The three lanes and their policies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Lane(StrEnum):
    """How urgent a job is. Each lane has its own slots, retries and lease times."""

    URGENT = "urgent"
    STANDARD = "standard"
    BULK = "bulk"


@dataclass(frozen=True, slots=True)
class LanePolicy:
    """The policy of a lane.

    ``retries`` is how often a failed job is retried; ``ack_seconds`` how long its worker may be
    silent before it loses the job; ``concurrency`` how many of the lane's jobs one worker runs at
    once, independently of other lanes; ``reserved_percent`` how many of these slots are reserved
    for organisations that hold none.
    """

    retries: int
    ack_seconds: float
    concurrency: int
    reserved_percent: float = 12.5

    @property
    def reserved(self) -> int:
        """The number of reserved slots: at least one, unless there is only one or it is off."""
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
