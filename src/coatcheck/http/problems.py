"""Turns errors into HTTP responses: the only module that knows their statuses.

An error has the status of its nearest base class that is listed here. So a product adds an error by
deriving it from a listed kind.

A problem contains what the caller can use, and no internals: no SQL, no file path, no stack trace.
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
    "public_detail",
    "stopped",
]

_log = logging.getLogger(__name__)

RETRY_AFTER_SECONDS: Final = 2
"""The Retry-After while the database is unavailable."""

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
    """A response with a problem, in the format of the request's route."""
    body = Problem(
        type=f"urn:coatcheck:problem:{code}",
        title=status.phrase,
        status=status,
        detail=detail,
        # The occurrence, not the path: the response to another tenant's id must differ from the
        # response to an id that does not exist only in the request's id and the time.
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
    """The response to an error of this application."""
    kind = next((kind for kind in type(error).__mro__ if kind in _STATUSES), None)
    if kind is None:
        _log.error("an error without an HTTP status: %s", type(error).__name__, exc_info=error)
        return internal_error(request)
    status = _STATUSES[kind]
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        _log.warning("answered 503: %s", error)
    return problem(
        request,
        status,
        error.code,
        public_detail(error),
        details=_details(error),
        headers=_headers(error, status),
    )


def public_detail(error: CoatcheckError) -> str:
    """The text of an error for its caller, without internals."""
    return error.public_text or str(error)


def method_not_allowed(request: Request, methods: Collection[str]) -> Response:
    """The response to a method that is not one of the path's ``methods``."""
    allowed = {*methods, "HEAD"} if "GET" in methods else methods
    return problem(
        request,
        HTTPStatus.METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "This path does not support the method; see the Allow header.",
        headers=[(b"allow", ", ".join(sorted(allowed)).encode())],
    )


def stopped(request: Request) -> Response:
    """The response to a request that had not ended when the grace period of its server was over."""
    return problem(
        request,
        HTTPStatus.SERVICE_UNAVAILABLE,
        OutcomeUnknown.code,
        "The server stopped before the request had ended. It may have taken effect: send it again "
        "with the same idempotency key to find out.",
        headers=[_retry_after(RETRY_AFTER_SECONDS)],
    )


def internal_error(request: Request) -> Response:
    """The response to an unexpected error; it reveals nothing."""
    return problem(
        request,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        CoatcheckError.code,
        "An internal error occurred. The server's log has it under the request's id.",
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
        return [_CLOSE]  # the rest of the body is not read
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
