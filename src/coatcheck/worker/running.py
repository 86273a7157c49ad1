"""One running attempt in this worker, and why it is being stopped."""

from __future__ import annotations

import asyncio
from enum import Enum, auto

from coatcheck.domain.job import ClaimedJob
from coatcheck.job import Job


class StopReason(Enum):
    """Why a handler is stopped from outside."""

    TIMEOUT = auto()  # it exceeded its timeout
    CANCEL = auto()  # cancellation was requested, and it did not stop by itself
    DRAIN = auto()  # this worker is shutting down
    LOST = auto()  # its lease is lost: whatever it does no longer counts
    GIVEN_BACK = auto()  # it would not stop, and its job was released without it


class RunningJob:
    """The state of an attempt while its handler runs. Times are monotonic."""

    __slots__ = (
        "cancel_asked_at",
        "claimed",
        "deadline",
        "job",
        "marked",
        "over",
        "shown_from",
        "started_at",
        "stop_reason",
        "stopped_at",
        "task",
    )

    def __init__(
        self,
        claimed: ClaimedJob,
        job: Job,
        task: asyncio.Task[None],
        started_at: float,
        deadline: float,
        shown_from: float | None,
    ) -> None:
        self.claimed = claimed
        self.job = job
        self.task = task
        self.started_at = started_at
        self.deadline = deadline
        self.shown_from = shown_from
        """When it began to count as processing; None until its handler reports its start."""
        self.marked = False
        self.over = False
        self.cancel_asked_at: float | None = None
        self.stop_reason: StopReason | None = None
        self.stopped_at = 0.0

    def ask_to_stop(self, now: float) -> None:
        """Tell the handler that cancellation was requested."""
        if self.cancel_asked_at is None:
            self.cancel_asked_at = now
            self.job.mark_cancel_requested()

    def stop(self, reason: StopReason, now: float) -> None:
        """Interrupt the handler, unless it has ended. The first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
        self.stopped_at = now
        if not self.over:
            self.task.cancel()
