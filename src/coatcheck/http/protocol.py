"""HTTP on one connection, bounded: no caller can hold it open by being slow, or fill the memory.

Uvicorn parses and answers; added here is what it leaves open. A request's head (its first line and
its headers) must be whole in time and in size, and name what must be named exactly once. While
requests wait for the answer before theirs, the connection is not read, and only so many may wait. A
body that nobody wants is thrown away only so long. An answer that nobody reads, or that is read too
slowly, is given up. Bodies that are wanted are bounded where they are read (``request.py``); until
somebody does, no more than the beginning of one is taken in.

What is refused here never became a request, so the application cannot answer it: the refusal is
written by this protocol, after the answers to the requests that came before it.

A connection with unread input is not simply closed. The system would tell the caller's to forget
what it has not read yet, which is our answer. It is half-closed first, and what still comes in is
thrown away for a moment, until the caller hangs up.
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
from coatcheck.http.connections import (
    CONNECTIONS,
    CONNECTIONS_OF_ONE_ADDRESS,
    LOOPBACK,
    RETRY_AFTER,
    Arrival,
    Connections,
)
from coatcheck.http.problem_formats import unrouted_format
from coatcheck.http.problems import problem
from coatcheck.http.request import ARRIVING, CONNECTION, FIELDS, Request
from coatcheck.http.response import ASGIApp, RawHeaders
from coatcheck.settings.parsers import Network
from coatcheck.telemetry import metrics

_log = logging.getLogger(__name__)

_HEADER_OVERHEAD_BYTES: Final = 4
"""The colon, the space and the end of the line."""
_PIECE_BYTES: Final = 4 * 1024
"""What the parser is given at a time, except of a body whose length is known: the parser does not
say how long the first line of a chunk was, so that can be told between two pieces only."""
_CHUNK_LINES_BYTES: Final = 16
"""The size of a chunk and its two ends of line: what is no extension."""
_SINGLE_HEADERS: Final = frozenset({b"host", b"authorization", b"x-api-key", b"transfer-encoding"})
"""A second one is refused: those before us may have taken the other for what counts. The parser
itself refuses a second ``Content-Length``."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a connection may cost."""

    head_seconds: float = 10.0
    """From the connection, or the first byte of a later request, to the end of its headers."""
    head_bytes: int = 16 * 1024
    headers: int = 100
    pipelined: int = 16
    """Requests that may wait for the answer to the one before them."""
    chunk_extension_bytes: int = 8 * 1024
    """Of one request, in all."""
    discarded_bytes: int = 1024 * 1024
    """Of a body that came after its request was answered."""
    linger_seconds: float = 2.0
    """For the caller to read a last answer and hang up."""
    unread_body_bytes: int = 16 * 1024
    """Of a body that nobody has asked for yet: no more is received until somebody does."""
    unread_bodies_bytes: int = 32 * 1024 * 1024
    """Of all such bodies that are longer, on all connections: one read takes in what has arrived,
    and that may be more than the bound of one body."""
    stall_seconds: float = 60.0
    """Of waiting for the reader of an answer, in which it must have read"""
    read_bytes_per_second_min: int = 8 * 1024
    """so much a second: one that reads byte by byte would hold the answer for days."""
    connections: int = CONNECTIONS
    connections_of_one_address: int = CONNECTIONS_OF_ONE_ADDRESS
    """Without a credential. 0: as many as there may be."""
    proxies: tuple[Network, ...] = LOOPBACK
    """Whose connections are not counted by address."""
    head_seconds_when_full: float = 2.0
    """For connections that are read although there are too many."""


class BoundedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, within ``Bounds``. While it ``drains``, every answer is the last.

    ``when_full`` answers the connections that are more than there may be; without it they are
    refused at once.
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
        others: Connections,
        when_full: ASGIApp | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._bounds = bounds
        self._drains = drains
        self._others = others
        self._when_full = when_full
        self._is_over = False
        self._is_stranger = True
        self._wire: asyncio.Transport
        self._responses: _Lingering
        self._in_head = False
        self._heard = False
        self._head_began = False
        self._has_url = False
        self._head_bytes_parsed = 0
        self._head_bytes_heard = 0
        self._discarded_bytes = 0
        self._chunked = False
        self._accounted_bytes = 0
        self._extension_bytes = 0
        self._answering: RequestResponseCycle | None = None
        self._unread_body_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._reader = _ReaderPace()
        self._linger_timer: asyncio.TimerHandle | None = None
        self._deaf = False
        self._refusal: bytes | None = None

    @property
    def _latest(self) -> RequestResponseCycle | None:
        """The request that was heard last, and its answer."""
        return self.cycle

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._wire = transport
        self._responses = _Lingering(transport, self)
        super().connection_made(self._responses)  # type: ignore[arg-type]
        self.flow = _PipelineFlow(self._responses, self.pipeline)  # type: ignore[arg-type]
        host = None if self.client is None else self.client[0]
        arrival = self._others.arrived(self, host, self.connections, self.loop.time())
        if arrival is not Arrival.WELCOME:
            self._restrict(arrival)
        if not self._deaf:
            self._start_head_timer()

    def _restrict(self, arrival: Arrival) -> None:
        """Refuse the connection, or read it only in order to see whether it is to be refused."""
        is_of_address = arrival is Arrival.ADDRESS_FULL
        metrics.record_bound_met("connections_of_address" if is_of_address else "connections")
        if arrival is Arrival.CUT_OFF:
            self._deaf = True
            self._wire.abort()
        elif is_of_address:
            self._refuse(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too_many_connections_of_address",
                "Your address has too many connections that have shown no credential.",
                [RETRY_AFTER],
            )
        elif self._when_full is None:
            self._refuse(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too_many_connections",
                "The server has too many connections; try again.",
                [RETRY_AFTER],
            )
        else:
            self._is_over = True
            self.app = self._when_full

    def is_known(self) -> None:
        """The caller has shown a valid credential: its address is not counted any more."""
        self._is_stranger = False
        self._others.is_known(self)

    def idle_until(self) -> float | None:
        """When it is closed if no request comes; None while one is under way."""
        timer = self.timeout_keep_alive_task
        if timer is None or self.hanging_up or self._in_head:
            return None
        return timer.when()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = True
        self.body_is_asked_for()
        for timer in (self._head_timer, self._stall_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()
        self._others.left(self)
        super().connection_lost(exc)
        # Uvicorn tells the request that was heard last. The one before it may be the one that is
        # being answered, and would wait for ever.
        self.pipeline.clear()
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._heard = True
        self._unset_keepalive_if_required()
        self._place(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            self._refuse_unparsed(error)
        except httptools.HttpParserUpgrade:
            # Not spoken here: the request is answered as if it had not asked. What follows it may
            # be in the other protocol.
            self._deaf = True
            self.cycle.keep_alive = False
        else:
            self._watch_head()

    def _feed(self, data: bytes) -> None:
        """Give the parser what came, in pieces where the framing of the body is counted."""
        if len(data) <= _PIECE_BYTES and not self._chunked:
            self.parser.feed_data(data)
            if self._chunked:
                self._count_extensions(len(data))
            return
        start = 0
        while start < len(data) and not self._deaf:
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
        """Count what of a piece was neither head nor body, nor the least that chunks need."""
        if not self.cycle.more_body:
            self._chunked = False
            return
        self._extension_bytes = max(0, self._extension_bytes + size - self._accounted_bytes)
        if self._extension_bytes > self._bounds.chunk_extension_bytes:
            self._refuse_malformed(
                "The extensions of a request's chunks must have at most "
                f"{self._bounds.chunk_extension_bytes} bytes.",
                bound="chunk_extensions",
            )

    def _place(self, data: bytes) -> None:
        """Count the piece to the head that it belongs to, as far as that is known beforehand."""
        latest: RequestResponseCycle | None = self.cycle
        self._head_began = latest is not None and latest.more_body
        if self._in_head:
            self._head_bytes_heard += len(data)
            self._head_began = True
        else:
            self._head_bytes_heard = len(data)

    def _watch_head(self) -> None:
        """Time a head that has begun and is not whole, and bound what was heard of it."""
        latest: RequestResponseCycle | None = self.cycle
        if self._in_head or latest is None or latest.response_complete:
            if self._head_bytes_heard > self._bounds.head_bytes and self._in_head:
                self._refuse_large_head()
            elif self._head_timer is None and self.timeout_keep_alive_task is None:
                self._start_head_timer()
        elif self._head_timer is not None:
            self._stop_head_timer()

    @property
    def _head_seconds(self) -> float:
        bounds = self._bounds
        return bounds.head_seconds_when_full if self._is_over else bounds.head_seconds

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self._head_seconds, self._head_is_late)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.flow.read_paused:
            self._start_head_timer()  # nothing is read meanwhile: it is not the caller who is late
            return
        latest = self._latest
        if not self._heard or (latest is not None and latest.more_body):
            self.hang_up()  # nobody asked anything, or has been answered
        else:
            self._refuse(
                HTTPStatus.REQUEST_TIMEOUT,
                "headers_too_slow",
                f"The headers did not arrive within {self._head_seconds:g} seconds.",
                bound="head",
            )

    def drain(self) -> None:
        """Make the answer to the request that is under way the connection's last."""
        latest = self._latest
        if latest is not None:
            latest.keep_alive = False

    # What the parser finds

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes_parsed = 0
        if self._head_began:
            # What of this piece is another request's cannot be told: later pieces are counted.
            self._head_bytes_heard = 0
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
            return  # a trailer: the request is under way, and its headers are what they were
        super().on_header(name, value)
        if len(self.headers) > self._bounds.headers:
            raise _HeadTooLarge

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._discarded_bytes = 0
        if b"%00" in self.url:
            raise _Malformed  # no path or field has one, and PostgreSQL's text cannot hold it
        self._check_headers()
        if len(self.pipeline) >= self._bounds.pipelined:
            raise _TooManyWaiting
        super().on_headers_complete()
        self.scope[ARRIVING] = self.cycle  # type: ignore[typeddict-unknown-key]
        if not self.pipeline:
            self._answering = self.cycle
        if self._is_stranger:
            self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
        if self._is_over or self._drains():
            self.cycle.keep_alive = False

    def _check_headers(self) -> None:
        """What must be there once is; and how the body comes."""
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
            self._wait_until_asked_for(waiting)

    def _wait_until_asked_for(self, size: int) -> None:
        """Receive no more of a body before somebody asks for it. If all connections together hold
        too much in this way, those that have for longest are cut off: whoever comes now is asked
        for soon, and must not pay for those who are not."""
        self.flow.pause_reading()
        _unread_bodies.bytes += size - self._unread_body_bytes
        self._unread_body_bytes = size
        _unread_bodies.holders.setdefault(self)
        while _unread_bodies.bytes > self._bounds.unread_bodies_bytes:
            metrics.record_bound_met("bodies")
            longest = next(iter(_unread_bodies.holders))
            longest.body_is_asked_for()
            if longest is self:
                raise _NoRoomForBody
            longest.cut_off()

    def cut_off(self) -> None:
        """End the connection at once, and forget what is unread on it: whoever answers the request
        may go on to wait for a while."""
        for cycle in (self._answering, *(each for each, _ in self.pipeline)):
            if cycle is not None:
                cycle.body = bytearray()
        self._wire.abort()

    def body_is_asked_for(self) -> None:
        """What was received of the body is no longer in the way."""
        _unread_bodies.holders.pop(self, None)
        _unread_bodies.bytes -= self._unread_body_bytes
        self._unread_body_bytes = 0

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self.cycle.response_complete:
            # It was answered before it was whole. Now the connection is idle.
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

    # Answers

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
            self.cycle.body = bytearray()  # it was not wanted, and the connection may stay for long
        if self.transport.is_closing():
            return
        if self.cycle.more_body:
            if self.expect_100_continue:
                self.hang_up()  # whether it is going to send its body cannot be known
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
        """Look again when it will have been waited for the reader for a while, in all."""
        remaining = self._bounds.stall_seconds - self._reader.waited_seconds
        self._stall_timer = self.loop.call_later(max(0.0, remaining), self._check_reader)

    def _check_reader(self) -> None:
        now, unread_bytes = self.loop.time(), self._wire.get_write_buffer_size()
        self._reader.end(now, unread_bytes)
        if self._reader.bytes_per_second < self._bounds.read_bytes_per_second_min:
            metrics.record_bound_met("reader")
            self._wire.abort()
        else:
            self._reader = _ReaderPace()
            self._reader.begin(now, unread_bytes)
            self._watch_reader()

    # Refusals

    def _refuse_unparsed(self, error: httptools.HttpParserError) -> None:
        match error.__context__:
            case _HeadTooLarge():
                self._refuse_large_head()
            case _TooManyWaiting():
                self._refuse(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    "pipeline_too_long",
                    f"At most {self._bounds.pipelined} requests may wait on a connection for the "
                    "answer before theirs. This one and those after it were not done.",
                    [RETRY_AFTER],
                    bound="pipeline",
                )
            case _NoRoomForBody():
                self.cycle.body = bytearray()
                self._refuse(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "server_busy",
                    "Too many bodies arrive at once; see Retry-After.",
                    [RETRY_AFTER],
                )
            case _Malformed(args=[str(detail)]):
                self._refuse_malformed(detail)
            case _:
                _log.debug("malformed request", exc_info=error)
                self._refuse_malformed("This is not valid HTTP.")

    def _refuse_large_head(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers_too_large",
            f"The request line and the headers must have at most {self._bounds.head_bytes} bytes "
            f"and {self._bounds.headers} headers.",
            bound="head",
        )

    def _refuse_malformed(self, detail: str, bound: str | None = None) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, "malformed_request", detail, bound=bound)

    def _refuse(
        self,
        status: HTTPStatus,
        code: str,
        detail: str,
        headers: RawHeaders = (),
        *,
        bound: str | None = None,
    ) -> None:
        """Answer what is no request, once it is its turn, and hear no more. ``bound`` was met."""
        if bound is not None:
            metrics.record_bound_met(bound)
        self._deaf = True
        self._stop_head_timer()
        refusal = self._render(status, code, detail, headers)
        cycle = self._latest
        if cycle is None or cycle.response_complete:
            self._write_last(refusal)
        elif not cycle.more_body:
            self._refusal = refusal  # the request before it is whole, and is answered first
        elif self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()  # what is wrong is in the body of one that waits
            self._refusal = refusal
        else:
            # It is in the body of the request that is being handled: that one gets no other answer.
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.hang_up()
            else:
                self._write_last(refusal)

    def _render(self, status: HTTPStatus, code: str, detail: str, headers: RawHeaders) -> bytes:
        request_id = ids.to_text(ids.new_id())
        request = Request({"method": "", "path": "/", "headers": ()}, _never, request_id)
        # Of what is no HTTP, the path is no path.
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
        """Close the connection, so that the caller can still read what was written."""
        if self.hanging_up:
            return
        self._responses.flush()
        whole = not self._in_head and not self._deaf
        latest = self._latest
        if whole and (latest is None or not latest.more_body):
            self._wire.close()
            if self._wire.get_write_buffer_size():  # nobody may ever read it
                self._linger_timer = self.loop.call_later(
                    self._bounds.stall_seconds, self._wire.abort
                )
            return
        self._deaf = True
        self._stop_head_timer()
        self._unset_keepalive_if_required()
        self.pipeline.clear()  # those that wait are not answered any more
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
            self._linger(unread_bytes)  # the caller is still reading
        else:
            self._wire.abort()


class _Lingering:
    """The transport that Uvicorn sees: closing it hangs up.

    Uvicorn writes the head of an answer and its body one after the other. They leave together, in
    one call to the system and most often in one packet.
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
        # The caller may have left since this turn of the loop began; uvloop then raises.
        if not self._wire.is_closing():
            self._wire.write(data)

    def resume_reading(self) -> None:
        self._protocol.body_is_asked_for()
        self._wire.resume_reading()

    def is_closing(self) -> bool:
        return self._protocol.hanging_up


class _PipelineFlow(FlowControl):
    """Reading, paused for as long as requests wait for the answer before theirs.

    Uvicorn goes on reading after each answer, and when a handler waits for its caller to leave:
    what a caller sends without reading the answers would then be limited by nothing. While it is
    paused nobody notices that the caller has left, until something is written.
    """

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        if not self._pipeline:
            super().resume_reading()


class _UnreadBodies:
    """What all connections of this process hold of long bodies that nobody has asked for yet."""

    def __init__(self) -> None:
        self.bytes = 0
        self.holders: dict[BoundedProtocol, None] = {}
        """Whoever has held some for longest comes first."""


_unread_bodies: Final = _UnreadBodies()


class _ReaderPace:
    """How much a caller reads while an answer waits for it, over all the times that it does.

    An answer that is sent in slices waits for a moment at each of them. A stream that has nothing
    to send waits for nobody.
    """

    __slots__ = ("_began", "_unread_bytes", "read_bytes", "waited_seconds")

    def __init__(self) -> None:
        self.waited_seconds = 0.0
        self.read_bytes = 0
        self._began = 0.0
        self._unread_bytes = 0

    def begin(self, now: float, unread_bytes: int) -> None:
        """The answer waits: so much of what was written is still to be read."""
        self._began = now
        self._unread_bytes = unread_bytes

    def end(self, now: float, unread_bytes: int) -> None:
        """It goes on."""
        self.waited_seconds += now - self._began
        self.read_bytes += self._unread_bytes - unread_bytes

    @property
    def bytes_per_second(self) -> float:
        return self.read_bytes / max(self.waited_seconds, 0.001)


class _Malformed(Exception):
    """Raised to the parser, which gives up. May say what is wrong."""


class _TooManyWaiting(Exception):
    """Raised to the parser, which gives up."""


class _NoRoomForBody(Exception):
    """Raised to the parser, which gives up."""


class _HeadTooLarge(Exception):
    """Raised to the parser, which gives up."""


async def _never() -> dict[str, Any]:
    raise AssertionError("a refusal reads no body")
