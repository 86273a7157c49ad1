"""The outcomes of fetches that fail: an error code for each cause and for each HTTP status."""

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
from coatcheck.domain.failures import FailureCode
from coatcheck.egress.resolver import NameNotFound
from coatcheck.egress.urls import parse_retry_after

RETRY_AFTER_SECONDS_MAX: Final = 3_600.0
"""The longest delay that a server's ``Retry-After`` can cause."""

_RETRYABLE_STATUSES: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
_CAUSES_MAX: Final = 10


class ScrapeFailure(FailureCode):
    """Pages that are scraped"""

    HTTP_STATUS = "http_{status}"
    """The server answered with this status. 408, 425, 429 and 5xx are retried."""
    DNS_FAILED = "dns_failed"
    """The host of the URL has no address. Retried."""
    CONNECT_FAILED = "connect_failed"
    """The server accepts no connection. Retried."""
    TLS_FAILED = "tls_failed"
    """A trusted TLS connection could not be made. Retried."""
    CONNECTION_LOST = "connection_lost"
    """The connection broke, or the answer is not HTTP. Retried."""
    TIMED_OUT = "timed_out"
    """The page took too long. Retried."""
    BODY_CORRUPT = "body_corrupt"
    """The page cannot be decompressed, or ends too soon. Retried."""
    CODING_UNKNOWN = "coding_unknown"
    """The page has a content coding that was not requested."""
    BODY_TOO_LARGE = "body_too_large"
    """The page is too long after decompression."""
    TOO_MANY_REDIRECTS = "too_many_redirects"
    """The page was not reached after the allowed number of redirects."""
    REDIRECT_INVALID = "redirect_invalid"
    """A redirect leads to an invalid URL."""
    GATEWAY_REFUSED = "gateway_refused"
    """The proxy did not connect to the server. Retried."""
    REQUEST_INVALID = "request_invalid"
    """The request would not be valid HTTP."""
    URL_FORBIDDEN = "url_forbidden"
    """The URL is malformed, or its address is not public."""


def no_response(error: Exception) -> JobSignal:
    """The outcome of a fetch that got no response."""
    match error:
        case UrlForbidden():
            return FailJob(str(error), code=ScrapeFailure.URL_FORBIDDEN)
        case LookUpRefused():
            return TargetUnreachable(str(error))
        case httpx2.LocalProtocolError() | httpx2.InvalidURL() | ValueError():
            return FailJob("The request is not valid HTTP.", code=ScrapeFailure.REQUEST_INVALID)
        case httpx2.ConnectError() if _is_caused_by(error, NameNotFound):
            return RetryLater("The URL's host has no address.", code=ScrapeFailure.DNS_FAILED)
        case httpx2.ConnectError() if _is_caused_by(error, ssl.SSLError):
            return RetryLater(
                "A trusted TLS connection could not be made.", code=ScrapeFailure.TLS_FAILED
            )
        case httpx2.ConnectTimeout():
            return RetryLater(
                "The connection was not accepted in time.", code=ScrapeFailure.CONNECT_FAILED
            )
        case httpx2.ConnectError():
            return RetryLater(
                "The connection to the server failed.", code=ScrapeFailure.CONNECT_FAILED
            )
        case _:
            return RetryLater(
                "The connection was lost before the server sent a response.",
                code=ScrapeFailure.CONNECTION_LOST,
            )


def body_interrupted() -> JobSignal:
    """The connection broke in the middle of the body."""
    return RetryLater(
        "The connection was lost within the body.", code=ScrapeFailure.CONNECTION_LOST
    )


def corrupt() -> JobSignal:
    return RetryLater("The body cannot be decompressed.", code=ScrapeFailure.BODY_CORRUPT)


def coding_unknown() -> JobSignal:
    return FailJob(
        "The body has an encoding that was not requested.", code=ScrapeFailure.CODING_UNKNOWN
    )


def timed_out(seconds: float) -> JobSignal:
    """The whole fetch took too long."""
    return RetryLater(
        f"The fetch took longer than {seconds:g} seconds.", code=ScrapeFailure.TIMED_OUT
    )


def too_large(bytes_max: int) -> JobSignal:
    return FailJob(f"The body has more than {bytes_max} bytes.", code=ScrapeFailure.BODY_TOO_LARGE)


def too_many_redirects(redirects_max: int) -> JobSignal:
    return FailJob(
        f"The page was not reached after {redirects_max} redirects.",
        code=ScrapeFailure.TOO_MANY_REDIRECTS,
    )


def redirect_invalid() -> JobSignal:
    return FailJob("A redirect has an invalid URL.", code=ScrapeFailure.REDIRECT_INVALID)


def gateway_unreachable(why: str) -> JobSignal:
    """The gateway is down or refuses the worker. The page was never requested."""
    return TargetUnreachable(f"The scrape gateway {why}.")


def gateway_refused() -> JobSignal:
    """The proxy did not connect to the page's server."""
    return RetryLater(
        "The proxy did not connect to the server.", code=ScrapeFailure.GATEWAY_REFUSED
    )


def error_of_status(response: httpx2.Response) -> JobSignal | None:
    """The outcome of a response with an error status; None for a page."""
    status = response.status_code
    if status < 400:
        return None
    message, code = (
        f"The server answered {status}.",
        ScrapeFailure.HTTP_STATUS.format(status=status),
    )
    if status in _RETRYABLE_STATUSES or 500 <= status < 600:
        after = parse_retry_after(response.headers, datetime.now(UTC), RETRY_AFTER_SECONDS_MAX)
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
