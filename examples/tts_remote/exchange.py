"""One HTTP request and its response, on ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec

from examples.tts_remote.failures import Refused, Stopped

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = tuple[tuple[str, str], ...]

BODY_BYTES_MAX = 4 << 20
PIECE_BYTES = 64 << 10
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: a JSON value, or the bytes of a file."""

    value: object = None
    file: Path | None = None
    media_type: str = JSON
    status: int = 200
    headers: Headers = ()


class Exchange:
    """Reads a request, and sends its response whole or in pieces."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.client: tuple[str, int] = tuple(scope["client"])
        self.headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        self._query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        self._receive = receive
        self._send = send

    def query(self, name: str) -> str | None:
        """The first value of a parameter of the URL."""
        return next(iter(self._query.get(name, [])), None)

    async def body(self) -> bytes:
        pieces, size = [], 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Stopped
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > BODY_BYTES_MAX:
                raise Refused(413, f"the body is larger than {BODY_BYTES_MAX} bytes")
            if not message.get("more_body", False):
                return b"".join(pieces)

    async def gone(self) -> None:
        """Returns when the caller disconnects. Only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(self, answer: Answer, cut_after: int | None = None) -> None:
        """``cut_after``: send this many bytes of the body, and no more."""
        if answer.file is not None:
            size = answer.file.stat().st_size
            pieces = pieces_of(answer.file)
        else:
            body = msgspec.json.encode(answer.value)
            size = len(body)
            pieces = _one(body)
        headers = (*answer.headers, ("content-length", str(size)))
        await self.stream(pieces, answer.media_type, answer.status, headers, cut_after)

    async def stream(
        self,
        pieces: AsyncGenerator[bytes, None],
        media_type: str,
        status: int = 200,
        headers: Headers = (),
        cut_after: int | None = None,
    ) -> None:
        """Send a response in pieces, with one piece in memory at a time."""
        await self._begin(status, media_type, headers)
        gone = asyncio.create_task(self.gone())
        sent = 0
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    if cut_after is not None and sent + len(piece) > cut_after:
                        await self._piece(piece[: cut_after - sent])
                        raise Stopped
                    await self._piece(piece)
                    sent += len(piece)
                    # Without a caller, Uvicorn accepts data without a pause.
                    await asyncio.sleep(0)
                    if gone.done():
                        raise Stopped
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)

    async def _begin(self, status: int, media_type: str, headers: Headers) -> None:
        pairs = (("content-type", media_type), *headers)
        encoded = [(name.lower().encode(), value.encode()) for name, value in pairs]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def _piece(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})


async def pieces_of(file: Path) -> AsyncGenerator[bytes, None]:
    with file.open("rb") as opened:
        while piece := await asyncio.to_thread(opened.read, PIECE_BYTES):
            yield piece


async def _one(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body
