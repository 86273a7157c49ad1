"""Uvicorn's HTTP protocol with bounds, so that a slow or hostile client cannot exhaust the server.

Uvicorn parses requests and writes responses. This adds the bounds that it lacks. A request's head
(its first line and its headers) must be complete in time, within a size, and have no duplicate of
headers that must be unique. While pipelined requests wait for the response before theirs, the
connection is not read, and their number is bounded. A body that no handler reads is discarded up to
a size. A response that the client does not read, or reads too slowly, is given up. Bodies that
handlers read are bounded there (``request.py``); before that, only their beginning is received.

Input that is refused here never became a request, so the application cannot answer it. This
protocol writes the refusal, after the responses to the requests that came before.

A connection with unread input is not simply closed: the kernel would send a reset, and the client's
kernel would then discard our response before the client has read it. The connection is half-closed
first, and its input is discarded for a moment, until the client closes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sized
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from coatcheck.domain import ids
from coatcheck.domain.bounds import CountedBound
from coatcheck.domain.errors import ServerBusy
from coatcheck.http.connections import (
    ADDRESS_BOUND,
    CONNECTIONS,
    CONNECTIONS_BOUND,
    CONNECTIONS_OF_ONE_ADDRESS,
    LOOPBACK,
    RETRY_AFTER,
    Arrival,
    ConnectionLimits,
)
from coatcheck.http.memory_budget import BODIES
from coatcheck.http.problem_formats import unrouted_format
from coatcheck.http.problems import Refusal, problem
from coatcheck.http.request import ARRIVING, CONNECTION, FIELDS, Request
from coatcheck.http.response import ASGIApp, RawHeaders
from coatcheck.settings.parsers import Network
from coatcheck.telemetry import metrics

_log = logging.getLogger(__name__)

_HEADER_OVERHEAD_BYTES: Final = 4
"""The colon, the space and the line break."""
_PIECE_BYTES: Final = 4 * 1024
"""The bytes that the parser gets at a time, except of a body with a known length. The parser does
not report the length of a chunk's first line, so it can only be computed between two pieces."""
_CHUNK_LINES_BYTES: Final = 16
"""The size line of a chunk and its two line breaks, without extensions."""
_SINGLE_HEADERS: Final = frozenset({b"host", b"authorization", b"x-api-key", b"transfer-encoding"})
"""A second one is refused: a proxy in front of us may have used the other one. The parser refuses a
second ``Content-Length``."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one connection, and of all connections together."""

    head_seconds: float = 10.0
    """From the connection, or the first byte of a later request, to the end of its headers."""
    head_bytes: int = 16 * 1024
    headers: int = 100
    pipelined: int = 16
    """Requests that may wait for the response to the one before them."""
    chunk_extension_bytes: int = 8 * 1024
    """The total of one request."""
    discarded_bytes: int = 1024 * 1024
    """The part of a body that arrives after its request was answered."""
    linger_seconds: float = 2.0
    """The time for a client to read the last response and close the connection."""
    unread_body_bytes: int = 16 * 1024
    """The beginning of a body that no handler reads yet. No more is received until one does."""
    unread_bodies_bytes: int = 32 * 1024 * 1024
    """The total of all unread bodies that exceed ``unread_body_bytes``, on all connections: one
    read receives everything that has arrived, which may exceed the bound of one body."""
    stall_seconds: float = 60.0
    """The time of waiting for a client, after which its reading speed is checked."""
    read_bytes_per_second_min: int = 8 * 1024
    """The minimum reading speed: a client that reads byte by byte would hold a response for
    days."""
    connections: int = CONNECTIONS
    connections_of_one_address: int = CONNECTIONS_OF_ONE_ADDRESS
    """Connections that have shown no credential. 0: no limit."""
    proxies: tuple[Network, ...] = LOOPBACK
    """Addresses whose connections are not counted by address."""
    head_seconds_when_full: float = 2.0
    """As ``head_seconds``, for connections over the limit."""


_DEFAULT: Final = Bounds()
_HEAD: Final = CountedBound(
    "head",
    of="request line and headers of a request",
    over="request",
    value=f"{_DEFAULT.head_bytes // 1024} KiB, {_DEFAULT.headers} headers, "
    f"{_DEFAULT.head_seconds:g} s",
    response="431 `headers_too_large`, 408 `headers_too_slow`",
)
_PIPELINE: Final = CountedBound(
    "pipeline",
    of="requests of one connection that wait for an earlier response",
    over="connection",
    value=str(_DEFAULT.pipelined),
    response="429 `pipeline_too_long` after the earlier responses, `Retry-After`, closed",
)
_CHUNK_EXTENSIONS: Final = CountedBound(
    "chunk_extensions",
    of="chunk extensions of a request, in total",
    over="request",
    value=f"{_DEFAULT.chunk_extension_bytes // 1024} KiB",
    response="400 `malformed_request`, closed",
)
_READER: Final = CountedBound(
    "reader",
    of="the minimum speed at which a client reads a response, over "
    f"{_DEFAULT.stall_seconds:g} s in which the server waits for the client",
    over="connection",
    value=f"{_DEFAULT.read_bytes_per_second_min // 1024} KiB a second",
    response="the connection is cut",
)


class BoundedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol within ``Bounds``. While it ``drains``, every response is the last one.

    ``when_full`` answers on connections over the limit; without it they are refused at once.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        bounds: Bounds,
        drains: Callable[[], bool],
        limits: ConnectionLimits,
        when_full: ASGIApp | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._bounds = bounds
        self._drains = drains
        self._connection_limits = limits
        self._when_full = when_full
        self._is_over_limit = False
        self._is_unauthenticated = True
        self._wire: asyncio.Transport
        self._responses: _LingeringTransport
        self._in_head = False
        self._has_input = False
        self._head_began = False
        self._has_url = False
        self._head_bytes_parsed = 0
        self._head_bytes_received = 0
        self._discarded_bytes = 0
        self._chunked = False
        self._accounted_bytes = 0
        self._extension_bytes = 0
        self._answering: RequestResponseCycle | None = None
        self._unread_body_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._reader = _ReadSpeed()
        self._linger_timer: asyncio.TimerHandle | None = None
        self._ignores_input = False
        self._refusal: bytes | None = None

    @property
    def _latest(self) -> RequestResponseCycle | None:
        """The request that was received last, and its response."""
        return self.cycle

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._wire = transport
        self._responses = _LingeringTransport(transport, self)
        super().connection_made(self._responses)  # type: ignore[arg-type]
        self.flow = _PipelineFlow(self._responses, self.pipeline)  # type: ignore[arg-type]
        host = None if self.client is None else self.client[0]
        arrival = self._connection_limits.opened(self, host, self.connections, self.loop.time())
        if arrival is not Arrival.ACCEPT:
            self._restrict(arrival)
        if not self._ignores_input:
            self._start_head_timer()

    def _restrict(self, arrival: Arrival) -> None:
        """Refuse the connection, or read one request to decide whether to refuse it."""
        is_of_address = arrival is Arrival.ADDRESS_FULL
        metrics.record_bound_met(ADDRESS_BOUND if is_of_address else CONNECTIONS_BOUND)
        if arrival is Arrival.ABORT:
            self._ignores_input = True
            self._wire.abort()
        elif is_of_address:
            self._refuse(
                *Refusal.TOO_MANY_CONNECTIONS_OF_ADDRESS.value,
                "Your address has too many connections that have shown no credential.",
                [RETRY_AFTER],
            )
        elif self._when_full is None:
            self._refuse(
                *Refusal.TOO_MANY_CONNECTIONS.value,
                "The server has too many connections; try again.",
                [RETRY_AFTER],
            )
        else:
            self._is_over_limit = True
            self.app = self._when_full

    def authenticated(self) -> None:
        """The caller has shown a valid credential: its address no longer counts the connection."""
        self._is_unauthenticated = False
        self._connection_limits.authenticated(self)

    def idle_until(self) -> float | None:
        """When it is closed if no request comes; None while a request is in progress."""
        timer = self.timeout_keep_alive_task
        if timer is None or self.hanging_up or self._in_head:
            return None
        return timer.when()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ignores_input = True
        self.body_is_read()
        for timer in (self._head_timer, self._stall_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()
        self._connection_limits.closed(self)
        super().connection_lost(exc)
        # Uvicorn notifies the request that was received last. A request before it may be the one
        # in progress, and would wait for ever.
        self.pipeline.clear()
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            return
        self._has_input = True
        self._unset_keepalive_if_required()
        self._count_to_head(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            self._refuse_unparsed(error)
        except httptools.HttpParserUpgrade:
            # Upgrades are not supported: the request is answered as if it had not asked for one.
            # The input after it may be in the other protocol.
            self._ignores_input = True
            self.cycle.keep_alive = False
        else:
            self._watch_head()

    def _feed(self, data: bytes) -> None:
        """Pass the data to the parser, in pieces where the framing of the body is counted."""
        if len(data) <= _PIECE_BYTES and not self._chunked:
            self.parser.feed_data(data)
            if self._chunked:
                self._count_extensions(len(data))
            return
        start = 0
        while start < len(data) and not self._ignores_input:
            latest = self._latest
            if self._in_head or latest is None or not latest.more_body or self._chunked:
                piece = data[start : start + _PIECE_BYTES]
            else:
                piece = data[start:]
            start += len(piece)
            self._accounted_bytes = 0
            self.parser.feed_data(piece)
            if self._chunked:
                self._count_extensions(len(piece))

    def _count_extensions(self, size: int) -> None:
        """Count the bytes of a piece that are neither head, nor body, nor the minimal framing of
        chunks."""
        if not self.cycle.more_body:
            self._chunked = False
            return
        self._extension_bytes = max(0, self._extension_bytes + size - self._accounted_bytes)
        if self._extension_bytes > self._bounds.chunk_extension_bytes:
            self._refuse_malformed(
                "The extensions of a request's chunks must have at most "
                f"{self._bounds.chunk_extension_bytes} bytes.",
                bound=_CHUNK_EXTENSIONS,
            )

    def _count_to_head(self, data: bytes) -> None:
        """Count the data to the head that it belongs to, as far as that is known before parsing."""
        latest: RequestResponseCycle | None = self.cycle
        self._head_began = latest is not None and latest.more_body
        if self._in_head:
            self._head_bytes_received += len(data)
            self._head_began = True
        else:
            self._head_bytes_received = len(data)

    def _watch_head(self) -> None:
        """Bound the time and the size of a head that has begun and is not complete."""
        latest: RequestResponseCycle | None = self.cycle
        if self._in_head or latest is None or latest.response_complete:
            if self._head_bytes_received > self._bounds.head_bytes and self._in_head:
                self._refuse_large_head()
            elif self._head_timer is None and self.timeout_keep_alive_task is None:
                self._start_head_timer()
        elif self._head_timer is not None:
            self._stop_head_timer()

    @property
    def _head_seconds(self) -> float:
        bounds = self._bounds
        return bounds.head_seconds_when_full if self._is_over_limit else bounds.head_seconds

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self._head_seconds, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.flow.read_paused:
            self._start_head_timer()  # reading is paused, so the client is not late
            return
        latest = self._latest
        if not self._has_input or (latest is not None and latest.more_body):
            self.hang_up()  # there is no request, or it has been answered
        else:
            self._refuse(
                *Refusal.HEADERS_TOO_SLOW.value,
                f"The headers did not arrive within {self._head_seconds:g} seconds.",
                bound=_HEAD,
            )

    def drain(self) -> None:
        """Make the response to the request in progress the connection's last."""
        latest = self._latest
        if latest is not None:
            latest.keep_alive = False

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes_parsed = 0
        if self._head_began:
            # How much of this piece belongs to this head is unknown, so only later pieces count.
            self._head_bytes_received = 0
        self._head_began = True
        self._has_url = False
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)
        self._has_url = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + _HEADER_OVERHEAD_BYTES)
        if not self._in_head:
            self._accounted_bytes += len(name) + len(value) + _HEADER_OVERHEAD_BYTES
            return  # a trailer: the request has begun, and its headers do not change any more
        super().on_header(name, value)
        if len(self.headers) > self._bounds.headers:
            raise _HeadTooLarge

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._discarded_bytes = 0
        if b"%00" in self.url:
            raise _Malformed  # no path or field needs NUL, and PostgreSQL's text cannot store it
        self._check_headers()
        if len(self.pipeline) >= self._bounds.pipelined:
            raise _TooManyWaiting
        super().on_headers_complete()
        self.scope[ARRIVING] = self.cycle  # type: ignore[typeddict-unknown-key]
        if not self.pipeline:
            self._answering = self.cycle
        if self._is_unauthenticated:
            self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
        if self._is_over_limit or self._drains():
            self.cycle.keep_alive = False

    def _check_headers(self) -> None:
        """Refuse missing or duplicate headers, and find out how the body is framed."""
        fields = dict(self.headers)
        self.scope[FIELDS] = fields  # type: ignore[typeddict-unknown-key]
        if len(fields) < len(self.headers):
            names = [name for name, _ in self.headers]
            for name in _SINGLE_HEADERS:
                if names.count(name) > 1:
                    raise _Malformed(f"The header {name.decode()} must come only once.")
        if b"host" not in fields and self.parser.get_http_version() != "1.0":
            raise _Malformed("The header host is missing.")
        coding = fields.get(b"transfer-encoding")
        self._chunked = coding is not None
        if coding is not None:
            if coding.strip().lower() != b"chunked" or self.parser.get_http_version() == "1.0":
                raise _Malformed("The only transfer coding is chunked, in HTTP/1.1.")
            self._extension_bytes = 0
            self._accounted_bytes = self._head_bytes_parsed

    def on_chunk_header(self) -> None:
        self._accounted_bytes += _CHUNK_LINES_BYTES

    def on_body(self, body: bytes) -> None:
        self._accounted_bytes += len(body)
        if self.cycle.response_complete:
            self._discarded_bytes += len(body)
            if self._discarded_bytes > self._bounds.discarded_bytes:
                self.hang_up()
            return
        super().on_body(body)
        waiting = sum(len(cycle.body) for cycle, _ in self.pipeline)
        if self._answering is not None:
            waiting += len(self._answering.body)
        if waiting > self._bounds.unread_body_bytes:
            self._pause_until_read(waiting)

    def _pause_until_read(self, size: int) -> None:
        """Receive no more of a body until its handler reads it. If all connections together hold
        too many unread bytes, those that have held them for longest are aborted: a new request is
        likely to be read soon, and must not suffer from requests that are not."""
        self.flow.pause_reading()
        _unread_bodies.bytes += size - self._unread_body_bytes
        self._unread_body_bytes = size
        _unread_bodies.holders.setdefault(self)
        while _unread_bodies.bytes > self._bounds.unread_bodies_bytes:
            metrics.record_bound_met(BODIES)
            longest = next(iter(_unread_bodies.holders))
            longest.body_is_read()
            if longest is self:
                raise _NoRoomForBody
            longest.cut_off()

    def cut_off(self) -> None:
        """Abort the connection, and free its unread body now: the handler may go on for a while."""
        for cycle in (self._answering, *(each for each, _ in self.pipeline)):
            if cycle is not None:
                cycle.body = bytearray()
        self._wire.abort()

    def body_is_read(self) -> None:
        """The received part of the body no longer counts as unread."""
        _unread_bodies.holders.pop(self, None)
        _unread_bodies.bytes -= self._unread_body_bytes
        self._unread_body_bytes = 0

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self.cycle.response_complete:
            # It was answered before it was complete. Now the connection is idle.
            self.cycle.more_body = False
            self._stop_head_timer()
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _count_head(self, size: int) -> None:
        self._head_bytes_parsed += size
        if self._head_bytes_parsed > self._bounds.head_bytes:
            raise _HeadTooLarge

    # Responses

    def on_response_complete(self) -> None:
        if self._refusal is not None and not self.pipeline and not self.transport.is_closing():
            self.server_state.total_requests += 1
            self._write_last(self._refusal)
            return
        if self.pipeline:
            self._answering = self.pipeline[-1][0]  # the next one
        super().on_response_complete()
        if not self.cycle.response_complete:
            return
        if self.cycle.body:
            self.cycle.body = bytearray()  # nobody read it, and the connection may stay for long
        if self.transport.is_closing():
            return
        if self.cycle.more_body:
            if self.expect_100_continue:
                self.hang_up()  # the client may or may not send its body now
            elif self._head_timer is None:
                self._start_head_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reader.begin(self.loop.time(), self._wire.get_write_buffer_size())
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reader.end(self.loop.time(), self._wire.get_write_buffer_size())
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _watch_reader(self) -> None:
        """Check the reader once the total time of waiting for it reaches ``stall_seconds``."""
        remaining = self._bounds.stall_seconds - self._reader.waited_seconds
        self._stall_timer = self.loop.call_later(max(0.0, remaining), self._check_reader)

    def _check_reader(self) -> None:
        now, unread_bytes = self.loop.time(), self._wire.get_write_buffer_size()
        self._reader.end(now, unread_bytes)
        if self._reader.bytes_per_second < self._bounds.read_bytes_per_second_min:
            metrics.record_bound_met(_READER)
            self._wire.abort()
        else:
            self._reader = _ReadSpeed()
            self._reader.begin(now, unread_bytes)
            self._watch_reader()

    # Refusals

    def _refuse_unparsed(self, error: httptools.HttpParserError) -> None:
        match error.__context__:
            case _HeadTooLarge():
                self._refuse_large_head()
            case _TooManyWaiting():
                self._refuse(
                    *Refusal.PIPELINE_TOO_LONG.value,
                    f"At most {self._bounds.pipelined} pipelined requests may wait on a "
                    "connection. This one and those after it were not processed.",
                    [RETRY_AFTER],
                    bound=_PIPELINE,
                )
            case _NoRoomForBody():
                self.cycle.body = bytearray()
                self._refuse(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    ServerBusy.code,
                    "The server is receiving too many bodies; see Retry-After.",
                    [RETRY_AFTER],
                )
            case _Malformed(args=[str(detail)]):
                self._refuse_malformed(detail)
            case _:
                _log.debug("malformed request", exc_info=error)
                self._refuse_malformed("This is not valid HTTP.")

    def _refuse_large_head(self) -> None:
        self._refuse(
            *Refusal.HEADERS_TOO_LARGE.value,
            f"The request line and the headers must have at most {self._bounds.head_bytes} bytes "
            f"and {self._bounds.headers} headers.",
            bound=_HEAD,
        )

    def _refuse_malformed(self, detail: str, bound: CountedBound | None = None) -> None:
        self._refuse(*Refusal.MALFORMED_REQUEST.value, detail, bound=bound)

    def _refuse(
        self,
        status: HTTPStatus,
        code: str,
        detail: str,
        headers: RawHeaders = (),
        *,
        bound: CountedBound | None = None,
    ) -> None:
        """Refuse input that is not a request, after the responses before it, and read no more.
        ``bound`` names the bound that was exceeded."""
        if bound is not None:
            metrics.record_bound_met(bound)
        self._ignores_input = True
        self._stop_head_timer()
        refusal = self._render(status, code, detail, headers)
        cycle = self._latest
        if cycle is None or cycle.response_complete:
            self._write_last(refusal)
        elif not cycle.more_body:
            self._refusal = refusal  # the request before it is complete, and is answered first
        elif self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()  # the fault is in the body of a request that waits
            self._refusal = refusal
        else:
            # The fault is in the body of the request in progress, so this is its response.
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.hang_up()
            else:
                self._write_last(refusal)

    def _render(self, status: HTTPStatus, code: str, detail: str, headers: RawHeaders) -> bytes:
        request_id = ids.to_text(ids.new_id())
        request = Request({"method": "", "path": "/", "headers": ()}, _never, request_id)
        # The path of a malformed request cannot be trusted.
        if self._has_url and status is not HTTPStatus.BAD_REQUEST:
            path = self.url.partition(b"?")[0].decode("latin-1")
            request.problem_format = unrouted_format(self.config.loaded_app, path)
        reply = problem(request, status, code, detail, headers=headers)
        fields = [
            *self.server_state.default_headers,
            *reply.headers,
            (b"x-request-id", request_id.encode()),
            (b"content-length", b"%d" % len(reply.body)),
            (b"connection", b"close"),
        ]
        metrics.record_request("other", "none", status, 0.0)
        lines = [b"%s: %s\r\n" % field for field in fields]
        return b"".join([STATUS_LINE[status], *lines, b"\r\n", reply.body])

    def _write_last(self, refusal: bytes) -> None:
        self.transport.write(refusal)
        self.hang_up()

    # The end

    @property
    def hanging_up(self) -> bool:
        return self._linger_timer is not None or self._wire.is_closing()

    def hang_up(self) -> None:
        """Close the connection in a way that lets the client read what was written."""
        if self.hanging_up:
            return
        self._responses.flush()
        all_read = not self._in_head and not self._ignores_input
        latest = self._latest
        if all_read and (latest is None or not latest.more_body):
            self._wire.close()
            if self._wire.get_write_buffer_size():  # the client may never read it
                self._linger_timer = self.loop.call_later(
                    self._bounds.stall_seconds, self._wire.abort
                )
            return
        self._ignores_input = True
        self._stop_head_timer()
        self._unset_keepalive_if_required()
        self.pipeline.clear()  # requests that wait get no response any more
        self.flow.resume_reading()
        if self._wire.can_write_eof():
            self._wire.write_eof()
        self._linger(self._wire.get_write_buffer_size())

    def _linger(self, unread_bytes: int) -> None:
        self._linger_timer = self.loop.call_later(
            self._bounds.linger_seconds, self._end_lingering, unread_bytes
        )

    def _end_lingering(self, unread_bytes_before: int) -> None:
        unread_bytes = self._wire.get_write_buffer_size()
        if 0 < unread_bytes < unread_bytes_before:
            self._linger(unread_bytes)  # the client is still reading
        else:
            self._wire.abort()


class _LingeringTransport:
    """The transport that Uvicorn uses: closing it calls ``hang_up``.

    Uvicorn writes the head and the body of a response separately. This transport sends them
    together, in one system call and mostly in one packet.
    """

    def __init__(self, wire: asyncio.Transport, protocol: BoundedProtocol) -> None:
        self._wire = wire
        self._held: bytes | None = None
        self.pause_reading = wire.pause_reading
        self.get_extra_info = wire.get_extra_info
        self.close = protocol.hang_up
        self._protocol = protocol

    def write(self, data: bytes) -> None:
        if self._held is None:
            self._held = data
            self._protocol.loop.call_soon(self.flush)
        else:
            data, self._held = self._held + data, None
            self._write(data)

    def flush(self) -> None:
        if self._held is not None:
            data, self._held = self._held, None
            self._write(data)

    def _write(self, data: bytes) -> None:
        # The client may have disconnected during this iteration of the loop; uvloop then raises.
        if not self._wire.is_closing():
            self._wire.write(data)

    def resume_reading(self) -> None:
        self._protocol.body_is_read()
        self._wire.resume_reading()

    def is_closing(self) -> bool:
        return self._protocol.hanging_up


class _PipelineFlow(FlowControl):
    """Flow control that does not resume reading while pipelined requests wait.

    Uvicorn resumes reading after each response, and when a handler waits for a disconnect: the
    input of a client that does not read its responses would then have no bound. While reading is
    paused, a disconnect goes unnoticed until something is written.
    """

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if not self._pipeline:
            super().resume_reading()


class _UnreadBodies:
    """The unread bytes of long bodies on all connections of this process."""

    def __init__(self) -> None:
        self.bytes = 0
        self.holders: dict[BoundedProtocol, None] = {}
        """Ordered by age: the connection that has held unread bytes for longest comes first."""


_unread_bodies: Final = _UnreadBodies()


class _ReadSpeed:
    """Measures how fast a client reads, over all the times in which a response waits for it.

    A response that is sent in slices waits for a moment at each of them. A stream that has nothing
    to send waits for nobody.
    """

    __slots__ = ("_began", "_unread_bytes", "read_bytes", "waited_seconds")

    def __init__(self) -> None:
        self.waited_seconds = 0.0
        self.read_bytes = 0
        self._began = 0.0
        self._unread_bytes = 0

    def begin(self, now: float, unread_bytes: int) -> None:
        """The response begins to wait, with this many bytes written and unread."""
        self._began = now
        self._unread_bytes = unread_bytes

    def end(self, now: float, unread_bytes: int) -> None:
        """The response goes on."""
        self.waited_seconds += now - self._began
        self.read_bytes += self._unread_bytes - unread_bytes

    @property
    def bytes_per_second(self) -> float:
        return self.read_bytes / max(self.waited_seconds, 0.001)


class _Malformed(Exception):
    """Raised into the parser to stop it. Its text says what is wrong."""


class _TooManyWaiting(Exception):
    """Raised into the parser to stop it."""


class _NoRoomForBody(Exception):
    """Raised into the parser to stop it."""


class _HeadTooLarge(Exception):
    """Raised into the parser to stop it."""


async def _never() -> dict[str, Any]:
    raise AssertionError("a refusal reads no body")
