"""Errors as HTTP answers: the only place that knows their statuses.

An error has the status of the nearest of its base classes that is listed here, so that a product
adds an error by deriving it from a kind that is.

A problem says what the caller can use and nothing of the inside: no SQL, no path, no trace.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import msgspec

from coatcheck.domain.errors import (
    BadRequest,
    BlobStoreUnavailable,
    BodyInflatesTooMuch,
    BodyTooLarge,
    BodyTooSlow,
    CoatcheckError,
    CompressedBody,
    Conflict,
    DatabaseUnavailable,
    FileRejected,
    IdempotencyMismatch,
    InvalidInput,
    InvalidParameter,
    MissingScope,
    NotFound,
    NotInstalled,
    NotServedAsCode,
    OutcomeUnknown,
    QueueFull,
    RateLimited,
    ResolverBusy,
    SchemaMismatch,
    SealingKeyMissing,
    ServerBusy,
    SignedUrlExpired,
    SubscriptionInactive,
    TimeoutNotAllowed,
    TooManyBytesInFlight,
    TooManyHeldAnswers,
    TooManyLookUps,
    Unauthenticated,
    UrlForbidden,
    UserRequired,
    WrongMediaType,
)
from coatcheck.http.problem_formats import MEDIA_TYPE, Detail, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response

__all__ = [
    "MEDIA_TYPE",
    "Detail",
    "Problem",
    "internal_error",
    "method_not_allowed",
    "problem",
    "problem_of",
    "said_of",
    "stopped",
]

_log = logging.getLogger(__name__)

RETRY_AFTER_SECONDS: Final = 2
"""When a database that is away is worth asking again."""

_CLOSE: Final = (b"connection", b"close")

_STATUSES: Final[Mapping[type[CoatcheckError], HTTPStatus]] = {
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    BodyTooSlow: HTTPStatus.REQUEST_TIMEOUT,
    CompressedBody: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    BodyInflatesTooMuch: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    WrongMediaType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    FileRejected: HTTPStatus.UNPROCESSABLE_ENTITY,
    InvalidInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    IdempotencyMismatch: HTTPStatus.UNPROCESSABLE_ENTITY,
    UrlForbidden: HTTPStatus.UNPROCESSABLE_ENTITY,
    BadRequest: HTTPStatus.BAD_REQUEST,
    Unauthenticated: HTTPStatus.UNAUTHORIZED,
    SubscriptionInactive: HTTPStatus.PAYMENT_REQUIRED,
    MissingScope: HTTPStatus.FORBIDDEN,
    NotServedAsCode: HTTPStatus.FORBIDDEN,
    TimeoutNotAllowed: HTTPStatus.FORBIDDEN,
    UserRequired: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    SignedUrlExpired: HTTPStatus.GONE,
    NotInstalled: HTTPStatus.NOT_IMPLEMENTED,
    RateLimited: HTTPStatus.TOO_MANY_REQUESTS,
    QueueFull: HTTPStatus.TOO_MANY_REQUESTS,
    TooManyLookUps: HTTPStatus.TOO_MANY_REQUESTS,
    ResolverBusy: HTTPStatus.SERVICE_UNAVAILABLE,
    TooManyHeldAnswers: HTTPStatus.TOO_MANY_REQUESTS,
    TooManyBytesInFlight: HTTPStatus.TOO_MANY_REQUESTS,
    ServerBusy: HTTPStatus.SERVICE_UNAVAILABLE,
    DatabaseUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    OutcomeUnknown: HTTPStatus.SERVICE_UNAVAILABLE,
    BlobStoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    SchemaMismatch: HTTPStatus.SERVICE_UNAVAILABLE,
    SealingKeyMissing: HTTPStatus.SERVICE_UNAVAILABLE,
}


def problem(
    request: Request,
    status: HTTPStatus,
    code: str,
    detail: str,
    *,
    details: Sequence[Detail] = (),
    headers: RawHeaders = (),
) -> Response:
    """A problem as an answer to ``request``, in the format of its route."""
    body = Problem(
        type=f"urn:coatcheck:problem:{code}",
        title=status.phrase,
        status=status,
        detail=detail,
        # The occurrence, not the path: a foreign id's answer shall differ in nothing from an
        # absent one's but the request's id and the time.
        instance=f"urn:coatcheck:request:{request.request_id}",
        code=code,
        message=detail,
        timestamp=datetime.now(UTC),
        request_id=request.request_id,
        details=list(details),
    )
    written = request.problem_format
    content_type = (b"content-type", written.media_type.encode())
    return Response(status, msgspec.json.encode(written.convert(body)), [content_type, *headers])


def problem_of(request: Request, error: CoatcheckError) -> Response:
    """The answer to an error that was raised on purpose."""
    kind = next((kind for kind in type(error).__mro__ if kind in _STATUSES), None)
    if kind is None:
        _log.error("an error without an HTTP meaning: %s", type(error).__name__, exc_info=error)
        return internal_error(request)
    status = _STATUSES[kind]
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        _log.warning("answered 503: %s", error)
    return problem(
        request,
        status,
        error.code,
        said_of(error),
        details=_details(error),
        headers=_headers(error, status),
    )


def said_of(error: CoatcheckError) -> str:
    """What a caller is told of an error: nothing of the inside."""
    return error.public_text or str(error)


def method_not_allowed(request: Request, methods: Collection[str]) -> Response:
    """The answer to a path that takes other ``methods`` only."""
    taken = {*methods, "HEAD"} if "GET" in methods else methods
    return problem(
        request,
        HTTPStatus.METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "This path does not take that method; see the Allow header.",
        headers=[(b"allow", ", ".join(sorted(taken)).encode())],
    )


def stopped(request: Request) -> Response:
    """The answer to a request that was under way when its server's grace was over."""
    return problem(
        request,
        HTTPStatus.SERVICE_UNAVAILABLE,
        OutcomeUnknown.code,
        "The server stopped before the request was done. It may have taken effect: send it again "
        "under the same idempotency key to find out.",
        headers=[_retry_after(RETRY_AFTER_SECONDS)],
    )


def internal_error(request: Request) -> Response:
    """The answer to what nobody foresaw; it gives nothing away."""
    return problem(
        request,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        CoatcheckError.code,
        "Something went wrong here. The request's id finds it in the log.",
    )


def _headers(error: CoatcheckError, status: HTTPStatus) -> RawHeaders:
    if isinstance(error, RateLimited):
        return [_retry_after(error.retry_after), *error.headers]
    if isinstance(error, (QueueFull, TooManyHeldAnswers, TooManyLookUps)):
        return [_retry_after(error.retry_after)]
    if isinstance(error, (TooManyBytesInFlight, ServerBusy)):
        close = [_CLOSE] if error.body_is_unread else []
        return [_retry_after(error.retry_after), *close]
    if isinstance(error, Unauthenticated):
        return [(b"www-authenticate", b"Bearer")]
    if isinstance(error, CompressedBody):
        return [_CLOSE, (b"accept-encoding", b"gzip")]
    if isinstance(error, (BodyTooLarge, BodyTooSlow, BodyInflatesTooMuch)):
        return [_CLOSE]  # what is left of the body is not read
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        return [_retry_after(RETRY_AFTER_SECONDS)]
    return []


def _retry_after(seconds: int) -> tuple[bytes, bytes]:
    return b"retry-after", b"%d" % seconds


def _details(error: CoatcheckError) -> list[Detail]:
    if isinstance(error, InvalidInput):
        return [Detail(issue.field, issue.issue, "body") for issue in error.issues]
    if isinstance(error, FileRejected):
        return [Detail("file", error.reason, "body")]
    if isinstance(error, InvalidParameter):
        return [Detail(error.field, error.issue, error.location)]
    return []
