"""The ASGI application: finds the route of a request, runs its handler, sends the response.

Everything that applies to every request is here and nowhere else: the request id, admission, the
conversion of errors to problems, metrics. It is raw ASGI, for a router whose last route costs as
little as its first, and for responses in one write (docs/adr/0013).

In the common case of the hot routes one call to the transport writes a whole response.
Uvicorn takes the head and the body of a response as two messages, checks every header with two
patterns, and writes twice. A response needs none of that if this server made all of its headers,
the request is complete and the connection stays open. All other responses are left to Uvicorn.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from coatcheck.domain import ids
from coatcheck.domain.bounds import CountedBound
from coatcheck.domain.errors import ClientGone, CoatcheckError, NotServedAsCode, Unauthenticated
from coatcheck.http.auth.credential_watch import CredentialWatch
from coatcheck.http.cors import CrossOrigin
from coatcheck.http.memory_budget import BodyBudget, ByteBudget
from coatcheck.http.open_responses import OpenResponses, asks_to_be_held
from coatcheck.http.parameters import ignored_note, refuse_unknown
from coatcheck.http.problem_formats import ProblemFormat, UnroutedFormats
from coatcheck.http.problems import internal_error, method_not_allowed, problem, problem_of, stopped
from coatcheck.http.request import ARRIVING, RESPONSE_SLOT, Request
from coatcheck.http.response import (
    BYTES_MIN,
    SLICE_BYTES_MAX,
    Message,
    RawHeaders,
    Receive,
    Response,
    Scope,
    Send,
    StreamResponse,
    compressed,
    compressed_stream,
    is_compressible,
)
from coatcheck.http.routing import Access, HoldsOpen, Match, Route, Router
from coatcheck.telemetry import context, metrics, traceparents, tracing
from coatcheck.telemetry.event_log import EVENTS


def write_whole(cycle: RequestResponseCycle, response: Response, extra: RawHeaders) -> bool:
    """Write the response to the request of ``cycle``. Returns False, and writes nothing, if
    Uvicorn has to do it."""
    if (
        not cycle.keep_alive
        or cycle.more_body
        or cycle.disconnected
        or cycle.response_started
        or cycle.flow.write_paused
        or cycle.scope["method"] == "HEAD"
    ):
        return False
    body = response.body
    lines = [STATUS_LINE[response.status]]
    for name, value in cycle.default_headers:
        lines += (name, b": ", value, b"\r\n")
    for name, value in response.headers:
        lines += (name, b": ", value, b"\r\n")
    for name, value in extra:
        lines += (name, b": ", value, b"\r\n")
    lines += (b"content-length: %d\r\n\r\n" % len(body), body)
    cycle.response_started = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(b"".join(lines))
    cycle.response_complete = True
    cycle.message_event.set()
    cycle.on_response()
    return True


_log = logging.getLogger(__name__)

REQUEST_ID_HEADER: Final = b"x-request-id"
_TRACEPARENT_HEADER: Final = traceparents.HEADER.encode()
_DESTINATION_HEADER: Final = b"sec-fetch-dest"
CODE_DESTINATIONS: Final = frozenset(
    {
        *(b"script", b"style", b"worker", b"sharedworker", b"serviceworker"),
        *(b"audioworklet", b"paintworklet", b"xslt", b"object", b"embed", b"manifest"),
    }
)
"""What a browser sends for a request whose response would run in a page, or change it."""

# Printable characters without a space: they can break neither a log line nor a header.
_VALID_REQUEST_ID: Final = re.compile(rb"[!-~]{1,128}")
_NO_ROUTE: Final = "none"
_SHOWN_SECONDS: Final = 0.2
"""The longest time until a request shows in the metrics."""
_COUNTED_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})

Admit = Callable[[Request, Route], Awaitable[RawHeaders]]
"""Admits a request, or raises. Returns headers for its response."""
Watch = Callable[[Request, Callable[[], None]], contextlib.AbstractContextManager[CredentialWatch]]
"""Calls a function once the credential of a request is no longer valid."""
_JOB_HEADERS: Final = frozenset({b"location", b"link", b"x-job-id", b"idempotent-replayed"})
"""Headers that lead to a job. They are sent even if there is no room for the response's body."""
_NAMES_JOB: Final = re.compile(r"/(?:jobs|tasks)/\{id\}")
_JOB_ID: Final = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_JOB_IN_HEADER: Final = re.compile(rb"(?:^|/)([0-7][0-9A-HJKMNP-TV-Z]{25})(?:$|[>/])")
_CLOSING_SECONDS_MAX: Final = 1.0
"""How long a reader whose credential became invalid may take to read the end of its stream."""


def _unwatched(
    _: Request, wake: Callable[[], None]
) -> contextlib.AbstractContextManager[CredentialWatch]:
    return contextlib.nullcontext(CredentialWatch(None, wake))


def _never() -> bool:
    return False


class Dispatcher:
    """An ASGI application made of routes."""

    def __init__(
        self,
        routes: Sequence[Route],
        admit: Admit,
        watch: Watch = _unwatched,
        drains: Callable[[], bool] = _never,
        held: OpenResponses | None = None,
        *,
        bodies: BodyBudget | None = None,
        large_responses: ByteBudget | None = None,
        cross_origin: CrossOrigin | None = None,
        unrouted_formats: Mapping[str, ProblemFormat] | None = None,
    ) -> None:
        """``bodies`` and ``large_responses`` bound the memory of all requests; None: no bound.
        ``unrouted_formats``: the format of errors at paths that have no route, by path prefix."""
        self.routes = tuple(routes)
        self._router = Router(routes)
        self.unrouted_formats = UnroutedFormats(routes, unrouted_formats or {})
        self._admit = admit
        self._watch = watch
        self._drains = drains
        self._held = held or OpenResponses()
        self._bodies = bodies
        self._large_responses = large_responses
        self._cross_origin = cross_origin or CrossOrigin()
        self._ids = _request_ids()
        self._metrics_are_due = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._handle(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            raise NotImplementedError(f"the ASGI scope {scope['type']} is not supported")

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        request_id, traceparent, destination = self._read_head(scope)
        request = Request(scope, receive, request_id, self._bodies)
        token = context.request_id.set(request_id)
        method = request.method
        route = _NO_ROUTE
        status = 0
        response: Response | StreamResponse | None = None
        try:
            origin = request.headers.get(b"origin") if self._cross_origin.is_on else None
            if origin is not None:
                request.cross_origin_headers = self._cross_origin.headers(origin, request.path)
            found = self._router.find(method, request.raw_path)
            if origin is not None and _is_preflight(request):
                asked = request.headers.get(b"access-control-request-headers")
                response = self._cross_origin.preflight(asked, request.cross_origin_headers)
            elif isinstance(found, Match):
                route = found.route.path
                request.problem_format = found.route.problem_format
                if destination in CODE_DESTINATIONS and not found.route.serves_code:
                    response = _not_code(request, destination)
                elif traceparent is None and not tracing.is_on():
                    response = await self._run(request, found)
                else:
                    response = await self._run_traced(request, found, traceparent)
            else:
                request.problem_format = self.unrouted_formats.of(request.raw_path)
                response = _not_served(request, found)
            if isinstance(response, Response) and len(response.body) > SLICE_BYTES_MAX:
                response = self._bounded(response, request)
            if isinstance(response, StreamResponse):
                # A HEAD response states the length, which is unknown for a compressed body.
                if (
                    response.is_compressible
                    and method != "HEAD"
                    and is_compressible(response.headers)
                ):
                    response = compressed_stream(response, request.headers.get(b"accept-encoding"))
            elif len(response.body) >= BYTES_MIN and ARRIVING in scope and _may_shrink(response):
                response = await compressed(response, request.headers.get(b"accept-encoding"))
            status = response.status
            await self._send(response, request, send)
        except ClientGone:
            _log.debug("the caller disconnected", extra={"path": route})
        except Exception:
            # The response has begun, so all that is left is to break the connection.
            _log.exception("unexpected error in the response to %s %s", method, route)
            raise
        finally:
            if request.response_slot is not None and RESPONSE_SLOT not in scope:
                request.response_slot.release()
            request.forget_body()
            if response is not None and response.reservation is not None:
                response.reservation.end()
            counted = method if method in _COUNTED_METHODS else "other"
            metrics.record_request(counted, route, status, time.perf_counter() - began)
            if not self._metrics_are_due:
                self._metrics_are_due = True
                asyncio.get_running_loop().call_later(_SHOWN_SECONDS, self._show_requests)
            if EVENTS.is_on:
                EVENTS.request(
                    request_id,
                    counted,
                    route,
                    status,
                    time.perf_counter() - began,
                    org=_org_of(request),
                    job_id=_job_of(request, route, response),
                )
            context.request_id.reset(token)
            # It refers to the scope. Reference counts then free both, and the garbage collector,
            # which costs more, has nothing to find.
            scope.pop(ARRIVING, None)

    async def _run(self, request: Request, match: Match) -> Response | StreamResponse:
        route = match.route
        request.params = match.params
        try:
            held = route.held
            if (
                held is not HoldsOpen.NEVER
                and request.response_slot is None
                and asks_to_be_held(request, held)
            ):
                request.response_slot = self._held.enter(request)
            if route.access is not Access.OPEN:
                if route.access is not Access.HANDLER:
                    request.response_headers = await self._admit(request, route)
                if request.scope["query_string"] and not route.any_query:
                    if route.ignores_query:
                        note = ignored_note(request.query, route.query_names)
                        request.response_headers = [*request.response_headers, *note]
                    else:
                        refuse_unknown(request.query, route.query_names)
            return await route.handler(request)
        except ClientGone:
            raise
        except CoatcheckError as error:
            return problem_of(request, error)
        except asyncio.CancelledError:
            if not self._drains():
                raise
            # The grace period is over, and the server cancels what is left. Without this answer
            # the caller would get Uvicorn's 500, in a format that our clients do not read.
            return stopped(request)
        except Exception:  # noqa: BLE001 - logged in full; the caller gets a 500 without details
            _log.exception("unexpected error in %s %s", request.method, route.path)
            return internal_error(request)

    async def _run_traced(
        self, request: Request, match: Match, traceparent: str | None
    ) -> Response | StreamResponse:
        """Run it as a part of the trace that the request belongs to."""
        route = match.route
        if route.access is Access.OPEN or not tracing.is_on():
            with contextlib.nullcontext() if traceparent is None else tracing.passing(traceparent):
                return await self._run(request, match)
        with tracing.span(
            f"{request.method} {route.path}",
            "server",
            # A dashboard page that calls the API does so within its trace.
            traceparent or tracing.current(),
            {
                "http.request.method": request.method,
                "http.route": route.path,
                "coatcheck.request_id": request.request_id,
            },
        ) as part:
            response = await self._run(request, match)
            part.note({"http.response.status_code": int(response.status)})
            if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                part.failed(str(int(response.status)))
            return response

    def _bounded(self, response: Response, request: Request) -> Response:
        """A large response, if there is room for it until the caller has read it; else a refusal.

        A shared response is in memory once, however many callers read it, so it is not counted.
        """
        if self._large_responses is None or response.is_shared:
            return response
        owner = request.address if request.caller is None else request.caller.org
        try:
            response.reservation = self._large_responses.reserve_now(owner, len(response.body))
        except CoatcheckError as error:
            refusal = problem_of(request, error)
            # The request may have taken effect: still say where its job is.
            found = [each for each in response.headers if each[0] in _JOB_HEADERS]
            refusal.headers = [*refusal.headers, *found]
            return refusal
        return response

    async def _send(
        self, response: Response | StreamResponse, request: Request, send: Send
    ) -> None:
        extra = [
            (REQUEST_ID_HEADER, request.request_id.encode("latin-1")),
            *request.response_headers,
            *request.cross_origin_headers,
        ]
        if (
            isinstance(response, Response)
            and response.fits_one_write
            and len(response.body) <= SLICE_BYTES_MAX
        ):
            cycle = request.scope.get(ARRIVING)
            if cycle is not None and write_whole(cycle, response, extra):
                return
        if isinstance(response, StreamResponse):
            await self._stream(response, request, send, extra)
        else:
            await response.send(send, extra, head=request.method == "HEAD")

    async def _stream(
        self, response: StreamResponse, request: Request, send: Send, extra: RawHeaders
    ) -> None:
        """Send a stream until it ends, the caller disconnects, or its credential is invalid."""
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        has_begun = False

        async def sent(message: Message) -> None:
            nonlocal has_begun
            await send(message)
            has_begun = True

        with self._watch(request, partial(_settle, lost)) as credential:
            response.pieces = _while_valid(response.pieces, credential)
            sending = response.send(sent, extra, head=request.method == "HEAD")
            if await _sent_whole(request, sending, lost) or not credential.lost:
                return
        _log.info("ending a response early: its credential is no longer valid")
        try:
            async with asyncio.timeout(_CLOSING_SECONDS_MAX):
                if not has_begun:
                    await problem_of(request, Unauthenticated()).send(send, extra, head=False)
                elif not response.is_measured:
                    await send(
                        {
                            "type": "http.response.body",
                            "body": response.closing_bytes,
                            "more_body": False,
                        }
                    )
                else:
                    _hang_up(request)
        except TimeoutError:
            _hang_up(request)

    @staticmethod
    async def _lifespan(receive: Receive, send: Send) -> None:
        """Nothing to do: the server's parts are opened before it and closed after it."""
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def _show_requests(self) -> None:
        self._metrics_are_due = False
        metrics.show_requests()

    def _read_head(self, scope: Scope) -> tuple[str, str | None, bytes | None]:
        """The request's id (the caller's, or a new one), its trace parent, and its fetch
        destination."""
        request_id = traceparent = destination = None
        for name, value in scope["headers"]:
            if name == REQUEST_ID_HEADER:
                if request_id is None and _VALID_REQUEST_ID.fullmatch(value):
                    request_id = str(value, "latin-1")
            elif name == _TRACEPARENT_HEADER:
                traceparent = str(value, "latin-1")
            elif name == _DESTINATION_HEADER:
                destination = value
        return next(self._ids) if request_id is None else request_id, traceparent, destination


async def _while_valid(
    pieces: AsyncIterator[bytes], credential: CredentialWatch
) -> AsyncIterator[bytes]:
    """The pieces for as long as the credential is valid. Then it waits until it is cancelled."""
    try:
        async for piece in pieces:
            if not await credential.is_valid():
                await asyncio.get_running_loop().create_future()
            yield piece
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


async def _sent_whole(
    request: Request, sending: Coroutine[Any, Any, None], lost: asyncio.Future[None]
) -> bool:
    """Send a stream. Returns whether it was sent to its end. Stops when the caller disconnects,
    which Uvicorn does not report to a sender, and when ``lost`` is done."""
    task, left = asyncio.create_task(sending), asyncio.create_task(request.disconnected())
    try:
        await asyncio.wait({task, left, lost}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        for each in (task, left):
            each.cancel()
        await asyncio.gather(task, left, return_exceptions=True)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _hang_up(request: Request) -> None:
    """Break the connection, so that nobody takes a body that ends early for a whole one."""
    cycle = request.scope.get(ARRIVING)
    if cycle is not None:
        cycle.disconnected = True
        cycle.transport.abort()


def _is_preflight(request: Request) -> bool:
    return request.method == "OPTIONS" and b"access-control-request-method" in request.headers


def _may_shrink(response: Response) -> bool:
    return not response.is_shared and is_compressible(response.headers)


def _org_of(request: Request) -> str | None:
    """The organisation of a request, if it is known. The path is believed only of callers that were
    admitted: what others write is not logged."""
    return None if request.caller is None else request.params.get("org", request.caller.org)


def _job_of(request: Request, route: str, response: Response | StreamResponse | None) -> str | None:
    """The job of a request: the one that its path names, or the one that it made."""
    if _NAMES_JOB.search(route) and _JOB_ID.fullmatch(named := request.params.get("id", "")):
        return named
    if response is not None and request.method != "GET":
        for name, value in response.headers:
            if name in _JOB_HEADERS and (found := _JOB_IN_HEADER.search(value)):
                return found[1].decode("ascii")
    return None


def _request_ids() -> Iterator[str]:
    """New request ids: a ULID of the process and a number. A ULID for each would cost ten times
    as much."""
    boot = ids.to_text(ids.new_id())
    return (f"{boot}-{number}" for number in itertools.count(1))


_CODE: Final = CountedBound(
    "code",
    of="what a browser may load as a script, a style, a worker or an object of a page",
    over="request",
    value="files of the dashboard and of `/docs`",
    response="403 `not_served_as_code`",
)


def _not_code(request: Request, destination: bytes | None) -> Response:
    metrics.record_bound_met(_CODE)
    asked = str(destination or b"", "latin-1")
    return problem_of(request, NotServedAsCode(f"A page may not load this path as a {asked}."))


def _not_served(request: Request, allowed: frozenset[str]) -> Response:
    if not allowed:
        detail = "This path does not exist. See /docs for the paths that do."
        return problem(request, HTTPStatus.NOT_FOUND, "not_found", detail)
    return method_not_allowed(request, allowed)
