"""Decides which failures to retry, and when. No I/O; randomness is an input.

Nearly every request may be sent twice: reads and cancellations are idempotent, and every
submission carries an idempotency key.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import httpx2

from coatcheck.client.errors import ApiError, ConnectionFailed, WaitTimeout
from coatcheck.domain.retry import Backoff


class Deadline:
    """A number of seconds from now; None means never."""

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and not seconds >= 0:
            raise ValueError("a timeout must not be negative")
        self.seconds = math.inf if seconds is None else seconds
        self._at = time.monotonic() + self.seconds

    def remaining(self) -> float:
        """Remaining seconds, at least 0."""
        return max(0.0, self._at - time.monotonic())

    @property
    def passed(self) -> bool:
        return self.remaining() == 0.0


class Stopwatch:
    """Measures the seconds since its creation."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began


BACKOFF: Final = Backoff(base_seconds=0.25, cap_seconds=8.0, jitter=0.5)
RETRY_AFTER_SECONDS_MAX: Final = 60.0
"""If the server asks for a longer delay, the client raises the error at once."""

_STATUSES: Final = frozenset({408, 429, 502, 503, 504})
_NOT_DONE: Final = frozenset({"rate_limited", "database_unavailable"})


def worth_retrying(error: ApiError) -> bool:
    """Whether the answer may change next time; a failed job stays failed."""
    return error.status in _STATUSES and error.job_url is None


def surely_not_done(error: ApiError | ConnectionFailed) -> bool:
    """Whether a request with this error certainly had no effect."""
    return isinstance(error, ApiError) and error.code in _NOT_DONE


def broken(error: httpx2.TransportError) -> bool:
    """Whether the network failed, rather than the request before it was sent."""
    return isinstance(
        error,
        (
            httpx2.NetworkError,
            httpx2.ProxyError,
            httpx2.RemoteProtocolError,
            httpx2.TimeoutException,
        ),
    )


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most ``retries`` retries."""

    retries: int

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError("retries must not be negative")

    def delay(
        self, failures: int, retry_after: float | None, random: float, at_least: float = 0.0
    ) -> float | None:
        """Seconds to wait after this many failures in a row; None to give up.

        ``random`` lies in [0, 1): it keeps clients that failed together from retrying together.
        ``at_least`` is what a stream asks of its readers.
        """
        if failures > self.retries:
            return None
        if retry_after is None:
            least = min(at_least, RETRY_AFTER_SECONDS_MAX)
            return max(least, BACKOFF.delay(failures - 1, random))
        if retry_after > RETRY_AFTER_SECONDS_MAX:
            return None
        return retry_after + BACKOFF.base_seconds * random


if TYPE_CHECKING:
    from coatcheck.client.models import BatchBody, GraphJob, JobBody, JobDetails

POLL_SECONDS: Final = 30.0
"""How long the server holds one long-poll: less than most proxies allow."""


class Polling:
    """How long the server should hold each poll, and the pause before the next one."""

    def __init__(self, timeout: float | None, *, hold: float = POLL_SECONDS) -> None:
        self.deadline = Deadline(timeout)
        self._hold = hold
        self._held = 0.0
        self._asked = Stopwatch()
        self._fruitless = 0

    def next_hold(self) -> float:
        """The seconds for which the server should hold the poll that starts now."""
        self._held = min(self._hold, self.deadline.remaining())
        self._asked = Stopwatch()
        return self._held

    def pause(self, found: JobBody | JobDetails | BatchBody | GraphJob) -> float:
        """The seconds to pause after an answer that is not the end. Raises WaitTimeout."""
        if self.deadline.passed:
            raise WaitTimeout(found, self.deadline.seconds)
        if self._asked.seconds >= self._held / 2:
            self._fruitless = 0
            return 0.0
        # A server that is shutting down does not hold polls; this must not become a busy loop.
        delay = BACKOFF.delay(self._fruitless, random.random())
        self._fruitless += 1
        return min(delay, self.deadline.remaining())
