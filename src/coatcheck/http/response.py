"""An answer: made by a handler, sent by the dispatcher."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, Final, Protocol

import msgspec

from coatcheck.http.asgi import Send

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


class Reply:
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


class StreamReply:
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


def json_reply(value: Any, status: int = 200, headers: RawHeaders = ()) -> Reply:
    """``value`` as JSON."""
    reply = Reply(status, _encode(value), [JSON, *headers])
    reply.is_our_own = True
    return reply


def shared_reply(body: bytes, headers: RawHeaders) -> Reply:
    """A body that is made once, and sent to all callers as it is."""
    reply = Reply(200, body, headers)
    reply.is_shared = True
    return reply


def raw_header(name: str, value: str) -> tuple[bytes, bytes]:
    return name.lower().encode("latin-1"), value.encode("latin-1")
