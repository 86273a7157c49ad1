"""Which failures to retry, and when. No I/O; randomness is an input.

Nearly every request may be sent twice: reads and cancellations are idempotent, and every
submission carries an idempotency key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import httpx2

from coatcheck.client.errors import ApiError, ConnectionFailed
from coatcheck.domain.retry import Backoff

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
        """Seconds to wait after so many failures in a row; None to give up.

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
