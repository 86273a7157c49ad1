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
    runs at a time, whatever the other lanes do.
    """

    retries: int
    ack_seconds: float
    concurrency: int


DEFAULT_POLICIES: Final = MappingProxyType(
    {
        Lane.URGENT: LanePolicy(retries=5, ack_seconds=30.0, concurrency=32),
        Lane.STANDARD: LanePolicy(retries=3, ack_seconds=120.0, concurrency=32),
        Lane.BULK: LanePolicy(retries=3, ack_seconds=300.0, concurrency=16),
    }
)
