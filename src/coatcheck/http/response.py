"""An answer: made by a handler, sent by the dispatcher."""

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
"""For content that a tenant chose, media type included: shown by a browser, it runs and loads
nothing, and is not taken for another type."""
_encode: Final = msgspec.json.Encoder().encode

SLICE_BYTES_MAX: Final = 64 * 1024
"""A longer body is sent in slices of this: the next once the caller has read what went before."""


class HeldBytes(Protocol):
    """What an answer holds until it was sent."""

    def end(self) -> None: ...


class Response:
    """A whole answer: its status, its headers (names in lower case) and its body.

    ``is_our_own``: no header came from elsewhere, none says anything of the connection or of a
    length, and there is a body. ``is_shared``: the body is made once and sent to all callers.
    ``reservation`` is ended once the answer was sent, or could not be.
    """

    __slots__ = ("body", "headers", "is_our_own", "is_shared", "reservation", "status")

    def __init__(self, status: int, body: bytes = b"", headers: RawHeaders = ()) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.is_our_own = False
        self.is_shared = False
        self.reservation: HeldBytes | None = None

    async def send(self, send: Send, extra: RawHeaders, *, head: bool) -> None:
        """Send it, with the headers ``extra`` besides its own; without its body if ``head``."""
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
    """An answer whose body is made while it is sent. ``reservation`` is as of a Reply.

    ``last_words`` end a body whose caller may hear no more of it; without any it just ends.
    ``is_compressible``: its body is there, and is only sent in pieces.
    """

    __slots__ = ("headers", "is_compressible", "last_words", "pieces", "reservation", "status")

    def __init__(
        self,
        status: int,
        pieces: AsyncIterator[bytes],
        headers: RawHeaders,
        last_words: bytes = b"",
    ) -> None:
        self.status = status
        self.pieces = pieces
        self.headers = headers
        self.last_words = last_words
        self.is_compressible = False
        self.reservation: HeldBytes | None = None

    @property
    def is_measured(self) -> bool:
        """Whether the body cannot end sooner: its length was told before, or its coding has an end
        of its own, which many clients do not miss."""
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
                await self.pieces.aclose()  # its reader may have gone in the middle
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_slices(send: Send, body: bytes) -> None:
    """Send a part of a body. The server takes a slice once the connection has room for it, so no
    more of what nobody reads is copied than that."""
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
    """``value`` as JSON."""
    response = Response(status, _encode(value), [JSON, *headers])
    response.is_our_own = True
    return response


def shared_response(body: bytes, headers: RawHeaders) -> Response:
    """A body that is made once, and sent to all callers as it is."""
    response = Response(200, body, headers)
    response.is_shared = True
    return response


def raw_header(name: str, value: str) -> tuple[bytes, bytes]:
    return name.lower().encode("latin-1"), value.encode("latin-1")


BYTES_MIN: Final = 4 * 1024
"""A shorter answer is as good as it is: it fits a packet or two."""
_AT_ONCE_BYTES: Final = 64 * 1024
"""A longer one is compressed in a thread."""
_TYPES: Final = (b"application/json", b"application/problem+json", b"text/csv")
_NEVER: Final = frozenset({b"content-encoding", b"content-range", b"set-cookie"})
_WEIGHT: Final = rb"\s*(?:;\s*q\s*=\s*([0-9.]+))?\s*(?:,|$)"
_GZIP: Final = re.compile(rb"(?:^|[,\s])(?:gzip|x-gzip)" + _WEIGHT)
_ANY: Final = re.compile(rb"(?:^|[,\s])\*" + _WEIGHT)
_VARY: Final = (b"vary", b"accept-encoding")
_CODING: Final = (b"content-encoding", b"gzip")


def accepts_gzip(accepted: bytes | None) -> bool:
    """Whether an ``Accept-Encoding`` takes gzip."""
    if accepted is None:
        return False
    accepted = accepted.lower()
    # What is said of gzip itself counts before what is said of all others.
    found = _GZIP.search(accepted) or _ANY.search(accepted)
    return found is not None and (found[1] is None or found[1].strip(b"0.") != b"")


def is_compressible(headers: RawHeaders) -> bool:
    """Whether what these headers go with may be compressed at all."""
    fits = False
    for name, value in headers:
        if name in _NEVER or (name == b"cache-control" and b"no-store" in value):
            return False
        if name == b"content-type":
            fits = value.startswith(_TYPES)
    return fits


async def compressed(response: Response, accepted: bytes | None) -> Response:
    """The answer as gzip, if the caller takes that; else as it is, with what caches need."""
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
    """The same of an answer that is sent in pieces. Its length is then not known before."""
    if not accepts_gzip(accepted):
        response.headers = [*response.headers, _VARY]
        return response
    response.pieces = gzipped_pieces(response.pieces)
    headers = [each for each in response.headers if each[0] != b"content-length"]
    response.headers = [*headers, _VARY, _CODING]
    return response
