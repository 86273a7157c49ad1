"""What becomes of a job whose upstream did not simply answer 2xx."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import httpx2

from coatcheck.domain.errors import (
    CoatcheckError,
    FailJob,
    JobSignal,
    LookUpRefused,
    RetryLater,
    SealingKeyMissing,
    SecretsLost,
    TargetUnreachable,
    UrlForbidden,
)
from coatcheck.egress.retry_after import asked_seconds

_log = logging.getLogger(__name__)

RETRY_AFTER_SECONDS_MAX: Final = 3_600.0
"""An upstream that asks for more is asked again after this long."""


def no_answer(error: Exception) -> JobSignal:
    """The call broke before the upstream had answered anything."""
    match error:
        case UrlForbidden():
            return FailJob(str(error), code=error.code)
        case LookUpRefused():
            return TargetUnreachable(str(error))
        case httpx2.LocalProtocolError() | httpx2.InvalidURL() | ValueError():
            return FailJob("The request cannot be sent as it is.", code="upstream_request_invalid")
        case httpx2.RemoteProtocolError() if _spoke(error):
            return RetryLater("The upstream did not answer in HTTP.", code="upstream_not_http")
        case httpx2.ConnectTimeout():
            return TargetUnreachable("The upstream did not accept the connection in time.")
        case httpx2.ConnectError():
            return TargetUnreachable("The upstream cannot be connected to.")
        case _:
            return TargetUnreachable("The upstream closed the connection before it answered.")


def no_secrets(error: CoatcheckError) -> JobSignal:
    """The registration's headers could not be opened, and nothing was sent."""
    match error:
        case SecretsLost():
            return FailJob(str(error), code=error.code)
        case SealingKeyMissing():
            _log.error("an upstream's job waits, which costs no attempt: %s", error)
            return TargetUnreachable(str(error))
        case _:
            return TargetUnreachable("The secrets of the service cannot be read now.")


def broke_off() -> JobSignal:
    """The connection broke in the middle of the answer."""
    return RetryLater("The upstream's answer broke off.", code="upstream_broke_off")


def timed_out(seconds: float) -> JobSignal:
    """The whole call took too long."""
    return RetryLater(
        f"The upstream did not answer within {seconds:g} seconds.", code="upstream_timeout"
    )


def too_large(bytes_max: int) -> JobSignal:
    return FailJob(
        f"The upstream's answer has more than {bytes_max} bytes.", code="upstream_answer_too_large"
    )


def refusal(
    status: int, headers: Mapping[str, str], excerpt: str, now: datetime | None = None
) -> JobSignal:
    """The upstream answered, but not 2xx. ``headers`` are looked up by lower-case names."""
    if 300 <= status < 400:
        return FailJob(
            f"The upstream answered {status}. Redirects are not followed: register the URL that it"
            " leads to.",
            code="upstream_redirect",
        )
    message = f"The upstream answered {status}" + (f": {excerpt}" if excerpt else ".")
    code = f"upstream_status_{status}"
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500:
        return RetryLater(message, after=retry_after(headers, now or datetime.now(UTC)), code=code)
    return FailJob(message, code=code)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """The delay that ``Retry-After`` asks for, as seconds or as a date, within bounds.

    A date is held against the upstream's own clock where it says what that shows.
    """
    return asked_seconds(headers, now, RETRY_AFTER_SECONDS_MAX)


def _spoke(error: Exception) -> bool:
    """Whether a protocol error is one of bytes that came, and not of none that did.

    httpcore2 carries what its parser says of bytes, and says itself that there were none.
    """
    carried = () if error.__cause__ is None else error.__cause__.args
    return any(isinstance(each, Exception) for each in carried)
