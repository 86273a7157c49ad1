"""HTTP responses: made by handlers, sent by the dispatcher."""

from __future__ import annotations

import asyncio
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    MutableMapping,
    Sequence,
)
from typing import Any, Final, Protocol

import msgspec

from coatcheck.compression import gzipped, gzipped_pieces

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


RawHeaders = Sequence[tuple[bytes, bytes]]

JSON: Final = (b"content-type", b"application/json")
SANDBOXED: Final[RawHeaders] = (
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"x-content-type-options", b"nosniff"),
)
"""Headers for content that a tenant chose, media type included: a browser runs and loads nothing
from it, and does not guess another type."""
_encode: Final = msgspec.json.Encoder().encode

SLICE_BYTES_MAX: Final = 64 * 1024
"""A longer body is sent in slices of this size, each after the caller has read the one before."""


class HeldBytes(Protocol):
    """Memory that a response has reserved until it is sent."""

    def end(self) -> None: ...


class Response:
    """A whole response: status, headers (names in lower case) and body.

    ``fits_one_write``: every header is made by this server, none is about the connection or the
    length, and there is a body (``dispatch.py``). ``is_shared``: one body is sent to all callers.
    ``reservation`` ends once the response was sent, or sending failed.
    """

    __slots__ = ("body", "fits_one_write", "headers", "is_shared", "reservation", "status")

    def __init__(self, status: int, body: bytes = b"", headers: RawHeaders = ()) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.fits_one_write = False
        self.is_shared = False
        self.reservation: HeldBytes | None = None

    async def send(self, send: Send, extra: RawHeaders, *, head: bool) -> None:
        """Send it with additional headers ``extra``; without its body if ``head``."""
        headers = [*self.headers, *extra]
        if self.status not in (204, 304):
            headers.append((b"content-length", b"%d" % len(self.body)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        body = b"" if head else self.body
        if len(body) > SLICE_BYTES_MAX:
            await _send_slices(send, body)
            body = b""
        await send({"type": "http.response.body", "body": body})


class StreamResponse:
    """A response whose body is made while it is sent. ``reservation`` is as in ``Response``.

    ``closing_bytes`` end the body of a caller whose credential became invalid; without them it just
    ends. ``is_compressible``: the whole body exists, and is only sent in pieces.
    """

    __slots__ = ("closing_bytes", "headers", "is_compressible", "pieces", "reservation", "status")

    def __init__(
        self,
        status: int,
        pieces: AsyncIterator[bytes],
        headers: RawHeaders,
        closing_bytes: bytes = b"",
    ) -> None:
        self.status = status
        self.pieces = pieces
        self.headers = headers
        self.closing_bytes = closing_bytes
        self.is_compressible = False
        self.reservation: HeldBytes | None = None

    @property
    def is_measured(self) -> bool:
        """Whether the body cannot end early: its length was sent before, or its encoding marks its
        end, and many clients do not notice if that is missing."""
        return any(name in (b"content-length", b"content-encoding") for name, _ in self.headers)

    async def send(self, send: Send, extra: RawHeaders, *, head: bool) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status,
                "headers": [*self.headers, *extra],
            }
        )
        try:
            if not head:
                async for piece in self.pieces:
                    await _send_slices(send, piece)
        finally:
            if isinstance(self.pieces, AsyncGenerator):
                await self.pieces.aclose()  # the reader may have disconnected in the middle
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_slices(send: Send, body: bytes) -> None:
    """Send a part of a body. The server accepts a slice once the connection has room for it, so at
    most one slice is copied for a caller that does not read."""
    if len(body) <= SLICE_BYTES_MAX:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        return
    for start in range(0, len(body), SLICE_BYTES_MAX):
        piece = body[start : start + SLICE_BYTES_MAX]
        await send({"type": "http.response.body", "body": piece, "more_body": True})


def encoded(value: Any) -> bytes:
    """``value`` as JSON."""
    return _encode(value)


def json_response(value: Any, status: int = 200, headers: RawHeaders = ()) -> Response:
    """A response with ``value`` as JSON."""
    response = Response(status, _encode(value), [JSON, *headers])
    response.fits_one_write = True
    return response


def shared_response(body: bytes, headers: RawHeaders) -> Response:
    """A response whose body is in memory once, for all callers."""
    response = Response(200, body, headers)
    response.is_shared = True
    return response


def raw_header(name: str, value: str) -> tuple[bytes, bytes]:
    return name.lower().encode("latin-1"), value.encode("latin-1")


BYTES_MIN: Final = 4 * 1024
"""A shorter response is not compressed: it fits a packet or two."""
_AT_ONCE_BYTES: Final = 64 * 1024
"""A longer response is compressed in a thread."""
_TYPES: Final = (b"application/json", b"application/problem+json", b"text/csv")
_NEVER: Final = frozenset({b"content-encoding", b"content-range", b"set-cookie"})
_WEIGHT: Final = rb"\s*(?:;\s*q\s*=\s*([0-9.]+))?\s*(?:,|$)"
_GZIP: Final = re.compile(rb"(?:^|[,\s])(?:gzip|x-gzip)" + _WEIGHT)
_ANY: Final = re.compile(rb"(?:^|[,\s])\*" + _WEIGHT)
_VARY: Final = (b"vary", b"accept-encoding")
_CODING: Final = (b"content-encoding", b"gzip")


def accepts_gzip(accepted: bytes | None) -> bool:
    """Whether an ``Accept-Encoding`` allows gzip."""
    if accepted is None:
        return False
    accepted = accepted.lower()
    # An entry for gzip takes precedence over one for ``*``.
    found = _GZIP.search(accepted) or _ANY.search(accepted)
    return found is not None and (found[1] is None or found[1].strip(b"0.") != b"")


def is_compressible(headers: RawHeaders) -> bool:
    """Whether a response with these headers may be compressed."""
    fits = False
    for name, value in headers:
        if name in _NEVER or (name == b"cache-control" and b"no-store" in value):
            return False
        if name == b"content-type":
            fits = value.startswith(_TYPES)
    return fits


async def compressed(response: Response, accepted: bytes | None) -> Response:
    """The response as gzip, if the caller accepts that; else unchanged. Either way with the header
    that caches need."""
    if not accepts_gzip(accepted):
        response.headers = [*response.headers, _VARY]
        return response
    body = response.body
    if len(body) <= _AT_ONCE_BYTES:
        response.body = gzipped(body)
    else:
        response.body = await asyncio.to_thread(gzipped, body)
    response.headers = [*response.headers, _VARY, _CODING]
    return response


def compressed_stream(response: StreamResponse, accepted: bytes | None) -> StreamResponse:
    """The same for a response that is sent in pieces. Its length is then not known in advance."""
    if not accepts_gzip(accepted):
        response.headers = [*response.headers, _VARY]
        return response
    response.pieces = gzipped_pieces(response.pieces)
    headers = [each for each in response.headers if each[0] != b"content-length"]
    response.headers = [*headers, _VARY, _CODING]
    return response
