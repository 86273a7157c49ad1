"""The outcome of one attempt. The worker maps each to its event in one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler returned; ``result`` is its value as JSON."""

    result: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """Failed for good: a retry would not help."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Retryable:
    """Failed; retried while attempts remain, after ``after_seconds`` or the usual backoff."""

    code: str
    message: str
    after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The target was unreachable. Retried after a backoff, without spending an attempt."""

    message: str
    after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Postponed:
    """Broke off in a way that is counted separately. Retried later, spending no attempt."""

    code: str
    message: str
    after_seconds: float


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The worker had to stop. The job is queued again at once, spending no attempt."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The handler stopped because cancellation was requested."""


@dataclass(frozen=True, slots=True)
class Parked:
    """The work continues at a remote, and this worker no longer holds the job."""


Outcome = (
    Completed | Failed | Retryable | Unreachable | Postponed | Interrupted | Cancelled | Parked
)
