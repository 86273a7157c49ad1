"""Turns errors into HTTP responses: the only module that knows their statuses.

An error has the status of its nearest base class that is listed here. So a product adds an error by
deriving it from a listed kind.

A problem contains what the caller can use, and no internals: no SQL, no file path, no stack trace.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
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
    JobNotFound,
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
    "Refusal",
    "internal_error",
    "method_not_allowed",
    "problem",
    "problem_of",
    "public_detail",
    "status_of",
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


class Refusal(Enum):
    """The problems of the server itself, which no error stands for: status, code and meaning."""

    MALFORMED_REQUEST = HTTPStatus.BAD_REQUEST, "malformed_request"
    """The bytes are no HTTP request, or one that a proxy could read differently."""
    METHOD_NOT_ALLOWED = HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed"
    """The path does not support the method. ``Allow`` lists those that it supports."""
    HEADERS_TOO_SLOW = HTTPStatus.REQUEST_TIMEOUT, "headers_too_slow"
    """The head of the request did not arrive in time."""
    RANGE_NOT_SATISFIABLE = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, "range_not_satisfiable"
    """The requested range begins behind the end of the file. ``Content-Range`` has its size."""
    PIPELINE_TOO_LONG = HTTPStatus.TOO_MANY_REQUESTS, "pipeline_too_long"
    """Too many pipelined requests wait on the connection. This one was not processed."""
    TOO_MANY_CONNECTIONS_OF_ADDRESS = (
        HTTPStatus.TOO_MANY_REQUESTS,
        "too_many_connections_of_address",
    )
    """The caller's address has too many connections that have shown no valid credential."""
    HEADERS_TOO_LARGE = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large"
    """The request line and the headers are too large, or too many."""
    NOT_READY = HTTPStatus.SERVICE_UNAVAILABLE, "not_ready"
    """``/readyz``: a check failed. ``details`` says which."""
    TOO_MANY_CONNECTIONS = HTTPStatus.SERVICE_UNAVAILABLE, "too_many_connections"
    """The server has as many connections as it may have."""


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
    status = status_of(type(error))
    if status is None:
        _log.error("an error without an HTTP status: %s", type(error).__name__, exc_info=error)
        return internal_error(request)
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


def status_of(error: type[CoatcheckError]) -> HTTPStatus | None:
    """The status that an error answers with; None for one that no request meets."""
    return next((_STATUSES[kind] for kind in error.__mro__ if kind in _STATUSES), None)


def public_detail(error: CoatcheckError) -> str:
    """The text of an error for its caller, without internals."""
    return error.public_text or str(error)


def method_not_allowed(request: Request, methods: Collection[str]) -> Response:
    """The response to a method that is not one of the path's ``methods``."""
    allowed = {*methods, "HEAD"} if "GET" in methods else methods
    return problem(
        request,
        *Refusal.METHOD_NOT_ALLOWED.value,
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
    if isinstance(error, JobNotFound) and error.found_at is not None:
        return [Detail("id", error.found_at, "path")]
    if isinstance(error, InvalidParameter):
        return [Detail(error.field, error.issue, error.location)]
    return []
