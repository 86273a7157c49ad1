"""What became of one attempt at a job. The worker maps each to its event in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler returned; ``result`` is its value as JSON."""

    result: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """Failed for good: trying again would not help."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Retryable:
    """Failed; tried again while attempts last, after ``after_seconds`` or the usual backoff."""

    code: str
    message: str
    after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The target could not be reached. Tried again after a backoff, spending no attempt."""

    message: str
    after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Postponed:
    """Broke off in a way that is counted elsewhere. Tried again later, spending no attempt."""

    code: str
    message: str
    after_seconds: float


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The worker had to stop. The job goes back at once, spending no attempt."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The handler stopped because cancellation was asked for."""


@dataclass(frozen=True, slots=True)
class Parked:
    """The work goes on elsewhere, and the job is no longer this worker's."""


Outcome = (
    Completed | Failed | Retryable | Unreachable | Postponed | Interrupted | Cancelled | Parked
)
