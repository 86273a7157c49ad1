"""The public API, called in this process on behalf of whoever looks at a page.

A call goes through the same dispatcher as one that came over a socket: it is authenticated, checked
for its scope and its organisation, counted against its rate limits, and logged under the id of the
page's own request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlencode

import msgspec

from coatcheck.control.asgi import ASGIApp, Message, Scope
from coatcheck.control.call import PLACE, HeldPlace
from coatcheck.control.reply import RawHeaders
from coatcheck.domain.errors import CoatcheckError

Query = Mapping[str, str | int | None]
_JSON: Final = (b"content-type", b"application/json")


class ApiProblem(CoatcheckError):
    """The API did not do as it was asked. Pages that do not catch it are answered by its page."""

    code = "api_problem"

    def __init__(self, status: int, body: bytes, retry_after: str | None = None) -> None:
        told = _read_problem(body)
        self.status = status
        self.problem_code = str(told.get("code") or "error")
        self.detail = str(told.get("detail") or "The API gave no reason.")
        self.details = [each for each in told.get("details") or [] if isinstance(each, dict)]
        self.request_id = told.get("requestId")
        self.retry_after = retry_after
        super().__init__(self.detail)


@dataclass(frozen=True, slots=True)
class Answered:
    """A whole answer of the API, which did as it was asked."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body) if self.body else None


@dataclass(frozen=True, slots=True)
class Opened:
    """An answer whose body is read piece by piece; ``pieces`` must be read or closed."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]


class Api:
    """The API, with one caller's credential. ``head``: only the head of the page is wanted.

    ``place`` is where the page's answer is held open, if it is: calls for it take no other.
    """

    def __init__(
        self,
        app: ASGIApp,
        credential: bytes,
        request_id: str,
        *,
        head: bool = False,
        place: HeldPlace | None = None,
    ) -> None:
        self._app = app
        self._head = head
        self._place = place
        self._headers: RawHeaders = [
            (b"authorization", b"Bearer " + credential),
            (b"x-request-id", request_id.encode("latin-1")),
        ]

    async def get(self, path: str, query: Query | None = None) -> Any:
        """What is at ``path``, decoded. Raises ApiProblem. Fields of the query may be None."""
        return (await self.call("GET", path, query=query)).json()

    async def post(self, path: str, json: Any = None) -> Any:
        """Post ``json``, if there is any; gives what is answered. Raises ApiProblem."""
        return (await self.call("POST", path, json=json)).json()

    async def patch(self, path: str, json: Any) -> Any:
        return (await self.call("PATCH", path, json=json)).json()

    async def delete(self, path: str) -> Any:
        return (await self.call("DELETE", path)).json()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        json: Any = None,
    ) -> Answered:
        """Call the API and read the whole answer. Raises ApiProblem for 400 and above.

        ``path`` is percent-encoded already, where that is needed (``dashboard.paths.to``).
        """
        body = b"" if json is None else msgspec.json.encode(json)
        scope = self._scope(method, path, query, None, has_body=json is not None)
        start: Message = {}
        pieces: list[bytes] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                pieces.append(message.get("body", b""))

        await self._app(scope, _Requested(body).receive, send)
        answered = Answered(start["status"], _by_name(start["headers"]), b"".join(pieces))
        if answered.status >= 400:
            raise ApiProblem(answered.status, answered.body, answered.headers.get("retry-after"))
        return answered

    async def open(
        self, path: str, *, query: Query | None = None, headers: Mapping[str, str] | None = None
    ) -> Opened:
        """Get what is too large to hold, or has no end. Raises ApiProblem for 400 and above."""
        # Of a page whose head is wanted nobody reads, and so nobody closes, the pieces: the call
        # has to end by itself, and what it says after its start has room.
        method, unread = ("HEAD", 2) if self._head else ("GET", 1)
        scope = self._scope(method, path, query, headers, has_body=False)
        messages: asyncio.Queue[Message | None] = asyncio.Queue(maxsize=unread)

        async def answer() -> None:
            try:
                await self._app(scope, _Requested(b"").receive, messages.put)
            except asyncio.CancelledError:
                raise  # nobody reads any more
            except BaseException:
                await messages.put(None)
                raise
            await messages.put(None)

        answering = asyncio.create_task(answer())
        try:
            start = await messages.get()
            if start is None:
                await answering
                raise AssertionError("an answer without a start")
            pieces = _pieces(messages, answering)
            answered = _by_name(start["headers"])
            if start["status"] >= 400:
                body = b"".join([piece async for piece in pieces])
                raise ApiProblem(start["status"], body, answered.get("retry-after"))
        except BaseException:
            answering.cancel()
            raise
        return Opened(start["status"], answered, pieces)

    def _scope(
        self,
        method: str,
        path: str,
        query: Query | None,
        headers: Mapping[str, str] | None,
        *,
        has_body: bool,
    ) -> Scope:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        path, _, in_path = path.partition("?")
        query_string = "&".join(filter(None, (in_path, urlencode(given))))
        held = {} if self._place is None else {PLACE: self._place}
        return held | {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode("ascii"),
            "query_string": query_string.encode("ascii"),
            "headers": [
                *self._headers,
                *([_JSON] if has_body else []),
                *(
                    (name.lower().encode("latin-1"), value.encode("latin-1"))
                    for name, value in (headers or {}).items()
                ),
            ],
        }


class _Requested:
    """The request's body, and then a caller that stays: whoever stops listening cancels."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    async def receive(self) -> Message:
        if self._body is None:
            await asyncio.get_running_loop().create_future()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _pieces(
    messages: asyncio.Queue[Message | None], answering: asyncio.Task[None]
) -> AsyncIterator[bytes]:
    try:
        while (message := await messages.get()) is not None:
            if message.get("body"):
                yield message["body"]
        await answering  # to raise what broke it
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


def _by_name(headers: RawHeaders) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}


def _read_problem(body: bytes) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return told if isinstance(told, dict) else {}
