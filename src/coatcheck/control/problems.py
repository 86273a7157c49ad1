"""Errors as HTTP answers (RFC 9457 problem details): the only place that knows their statuses.

A problem says what the caller can use and nothing of the inside: no SQL, no path, no trace.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coatcheck.domain.errors import (
    BadRequest,
    CoatcheckError,
    DatabaseUnavailable,
    IdempotencyMismatch,
    InvalidInput,
    JobAlreadyEnded,
    JobNotFound,
    OutcomeUnknown,
    SchemaMismatch,
)
from coatcheck.telemetry import context

_log = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 2

_STATUSES: Final[Mapping[type[CoatcheckError], HTTPStatus]] = {
    BadRequest: HTTPStatus.BAD_REQUEST,
    InvalidInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    IdempotencyMismatch: HTTPStatus.UNPROCESSABLE_ENTITY,
    JobNotFound: HTTPStatus.NOT_FOUND,
    JobAlreadyEnded: HTTPStatus.CONFLICT,
    DatabaseUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    OutcomeUnknown: HTTPStatus.SERVICE_UNAVAILABLE,
    SchemaMismatch: HTTPStatus.SERVICE_UNAVAILABLE,
}

# What an error's own text would say of the inside is said in other words.
_DETAILS: Final[Mapping[type[CoatcheckError], str]] = {
    JobNotFound: "There is no such job.",
    DatabaseUnavailable: "The database cannot be reached. Nothing was done; try again.",
    OutcomeUnknown: "The connection to the database broke. The request may have taken effect: "
    "send it again under the same idempotency key to find out.",
    SchemaMismatch: "The database's schema is of another version than this server.",
}

_HTTP_DETAILS: Final[Mapping[int, str]] = {
    HTTPStatus.NOT_FOUND: "Nothing is served at this path.",
    HTTPStatus.METHOD_NOT_ALLOWED: "This path does not take that method; see the Allow header.",
}


class Detail(msgspec.Struct, frozen=True):
    """One thing that is wrong with a request."""

    field: str
    issue: str
    location: str


class Problem(msgspec.Struct, frozen=True, rename="camel"):
    """What went wrong. ``code`` is stable and machine-readable; ``message`` repeats ``detail``."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    message: str
    timestamp: datetime
    request_id: str | None
    details: list[Detail]


def problem_response(
    request: Request,
    status: HTTPStatus,
    *,
    code: str,
    detail: str,
    details: list[Detail] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A problem as an answer to ``request``."""
    problem = Problem(
        type=f"urn:coatcheck:problem:{code}",
        title=status.phrase,
        status=status,
        detail=detail,
        instance=request.url.path,
        code=code,
        message=detail,
        timestamp=datetime.now(UTC),
        request_id=context.request_id.get(),
        details=details or [],
    )
    return Response(
        msgspec.json.encode(problem), status, headers=dict(headers or {}), media_type=MEDIA_TYPE
    )


async def answer_coatcheck_error(request: Request, error: Exception) -> Response:
    """For Starlette's ``exception_handlers``: every CoatcheckError."""
    assert isinstance(error, CoatcheckError)
    kind = next((kind for kind in type(error).__mro__ if kind in _STATUSES), None)
    if kind is None:
        _log.error("an error without an HTTP meaning: %s", type(error).__name__, exc_info=error)
        return _internal_error(request)
    status = _STATUSES[kind]
    unavailable = status is HTTPStatus.SERVICE_UNAVAILABLE
    if unavailable:
        _log.warning("answered 503: %s", error)
    return problem_response(
        request,
        status,
        code=error.code,
        detail=_DETAILS.get(kind, str(error)),
        details=_details(error),
        headers={"Retry-After": str(RETRY_AFTER_SECONDS)} if unavailable else None,
    )


async def answer_http_exception(request: Request, error: Exception) -> Response:
    """For Starlette's ``exception_handlers``: its own 404, 405 and the like."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    return problem_response(
        request,
        status,
        code=status.name.lower(),
        detail=_HTTP_DETAILS.get(status, error.detail),
        headers=error.headers,
    )


class UnexpectedErrors:
    """Turns what nobody foresaw into a 500 that gives nothing away, and logs it whole.

    Starlette's own place for this lies outside every middleware, where the request's id is gone.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except Exception:
            _log.exception("unexpected error in %s %s", scope["method"], scope["path"])
            if started:
                # Too late for a status: breaking the connection is the only honest answer.
                raise
            await _internal_error(Request(scope))(scope, receive, send)


def _internal_error(request: Request) -> Response:
    return problem_response(
        request,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        code=CoatcheckError.code,
        detail="Something went wrong here. The request's id finds it in the log.",
    )


def _details(error: CoatcheckError) -> list[Detail]:
    if isinstance(error, InvalidInput):
        return [Detail(issue.field, issue.issue, "body") for issue in error.issues]
    return []
