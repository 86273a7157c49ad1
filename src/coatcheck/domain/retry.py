"""Exponential backoff with jitter. Randomness is an input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Backoff:
    """``base`` doubled for each earlier failure, at most ``cap``, plus up to ``jitter`` of it."""

    base_seconds: float
    cap_seconds: float
    jitter: float

    def delay(self, failures_before: int, random: float) -> float:
        """The delay before the next try. ``random`` lies in [0, 1)."""
        exponent = min(failures_before, 63)
        plain = min(self.base_seconds * 2.0**exponent, self.cap_seconds)
        return plain * (1.0 + self.jitter * random)


JOB_BACKOFF: Final = Backoff(base_seconds=1.0, cap_seconds=300.0, jitter=0.5)
UNREACHABLE_BACKOFF: Final = Backoff(base_seconds=2.0, cap_seconds=300.0, jitter=0.5)

CRASH_BACKOFF: Final = Backoff(base_seconds=5.0, cap_seconds=60.0, jitter=1.0)
"""After the second crash; the first costs no delay. A job that kills its worker takes others with
it. They restart at different times, so that the next crash hits few of them."""

DATABASE_BACKOFF: Final = Backoff(base_seconds=0.5, cap_seconds=5.0, jitter=0.5)
DATABASE_ATTEMPTS: Final = 3
"""The tries before a caller gets 503; the loops of a worker retry forever."""

LISTENER_BACKOFF: Final = Backoff(base_seconds=0.5, cap_seconds=2.0, jitter=0.5)
"""The listener is the first to notice that the database is back, and wakes the others: within three
seconds, so that work resumes within five."""

BLOB_BACKOFF: Final = Backoff(base_seconds=1.0, cap_seconds=10.0, jitter=0.5)
BLOB_RETRIES: Final = 3
"""The retries before a caller gets an error; loops retry at their next tick."""
