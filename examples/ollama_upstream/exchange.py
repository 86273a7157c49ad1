"""One HTTP request and its response, on ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import msgspec

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON = "application/json; charset=utf-8"
NDJSON = "application/x-ndjson"


class Exchange:
    """Reads a request, and sends its response whole or line by line."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.client: tuple[str, int] = tuple(scope["client"])
        self.headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        self.answering = False
        """Whether a part of the answer has been sent."""
        self._receive = receive
        self._send = send

    async def body(self) -> bytes:
        pieces = []
        while True:
            message = await self._receive()
            pieces.append(message.get("body", b""))
            if not message.get("more_body", False):
                return b"".join(pieces)

    async def gone(self) -> None:
        """Returns when the caller disconnects. Only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(
        self,
        value: object,
        status: int = 200,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        await self._whole(msgspec.json.encode(value), JSON, status, headers)

    async def answer_text(self, text: str, status: int = 200) -> None:
        await self._whole(text.encode(), "text/plain", status, ())

    async def line(self, value: object) -> None:
        """Send one more object of a stream; the first one begins the response."""
        await self.raw(msgspec.json.encode(value) + b"\n")

    async def raw(self, data: bytes) -> None:
        if not self.answering:
            await self._begin(200, NDJSON, ())
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """The end of a stream."""
        if not self.answering:
            await self._begin(200, NDJSON, ())
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _whole(
        self, body: bytes, media_type: str, status: int, headers: Iterable[tuple[str, str]]
    ) -> None:
        await self._begin(status, media_type, [*headers, ("content-length", str(len(body)))])
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def _begin(
        self, status: int, media_type: str, headers: Iterable[tuple[str, str]]
    ) -> None:
        self.answering = True
        pairs = [("content-type", media_type), *headers]
        encoded = [(name.lower().encode(), value.encode()) for name, value in pairs]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})
