"""What becomes of a job whose page was not simply there. One code for each cause, one a status."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import httpx2

from coatcheck.domain.errors import (
    FailJob,
    JobSignal,
    LookUpRefused,
    RetryLater,
    TargetUnreachable,
    UrlForbidden,
)
from coatcheck.egress.resolver import NameNotFound
from coatcheck.egress.urls import asked_seconds

RETRY_AFTER_SECONDS_MAX: Final = 3_600.0
"""A server that asks for more is asked again after this long."""

_WORTH_ANOTHER_TRY: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
_CAUSES_MAX: Final = 10


def no_answer(error: Exception) -> JobSignal:
    """The fetch broke before the page's server had answered anything."""
    match error:
        case UrlForbidden():
            return FailJob(str(error), code=error.code)
        case LookUpRefused():
            return TargetUnreachable(str(error))
        case httpx2.LocalProtocolError() | httpx2.InvalidURL() | ValueError():
            return FailJob("The request cannot be sent as it is.", code="request_invalid")
        case httpx2.ConnectError() if _is_caused_by(error, NameNotFound):
            return RetryLater("The URL's host has no address.", code="dns_failed")
        case httpx2.ConnectError() if _is_caused_by(error, ssl.SSLError):
            return RetryLater("No TLS connection that can be trusted.", code="tls_failed")
        case httpx2.ConnectTimeout():
            return RetryLater("The connection was not accepted in time.", code="connect_failed")
        case httpx2.ConnectError():
            return RetryLater("The server cannot be connected to.", code="connect_failed")
        case _:
            return RetryLater(
                "The connection was lost before an answer in HTTP had come.", code="connection_lost"
            )


def broke_off() -> JobSignal:
    """The connection broke in the middle of the body."""
    return RetryLater("The body broke off.", code="connection_lost")


def corrupt() -> JobSignal:
    return RetryLater("The body cannot be unpacked.", code="body_corrupt")


def coding_unknown() -> JobSignal:
    return FailJob("The body is packed in a way that was not asked for.", code="coding_unknown")


def timed_out(seconds: float) -> JobSignal:
    """The whole fetch took too long."""
    return RetryLater(f"The fetch took longer than {seconds:g} seconds.", code="timed_out")


def too_large(bytes_max: int) -> JobSignal:
    return FailJob(f"The body has more than {bytes_max} bytes.", code="body_too_large")


def too_many_redirects(redirects_max: int) -> JobSignal:
    return FailJob(
        f"The page was not reached after {redirects_max} redirects.", code="too_many_redirects"
    )


def redirect_invalid() -> JobSignal:
    return FailJob("A redirect leads to what is no URL.", code="redirect_invalid")


def gateway_away(why: str) -> JobSignal:
    """Nothing is wrong with the page: it was never asked for."""
    return TargetUnreachable(f"The scrape gateway {why}.")


def gateway_refused() -> JobSignal:
    """The proxy did not connect us to the page's server."""
    return RetryLater("The proxy made no connection to the server.", code="gateway_refused")


def refusal(response: httpx2.Response) -> JobSignal | None:
    """What an answer means for the job; None if the page is there."""
    status = response.status_code
    if status < 400:
        return None
    message, code = f"The server answered {status}.", f"http_{status}"
    if status in _WORTH_ANOTHER_TRY or 500 <= status < 600:
        after = asked_seconds(response.headers, datetime.now(UTC), RETRY_AFTER_SECONDS_MAX)
        return RetryLater(message, after=after, code=code)
    return FailJob(message, code=code)


def _is_caused_by(error: BaseException, kind: type[BaseException]) -> bool:
    return any(isinstance(cause, kind) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__
