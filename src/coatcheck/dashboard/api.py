"""An in-process client of the public API that calls it with the visitor's credential.

A call passes the same dispatcher as a request from a socket. The dispatcher authenticates it,
checks its scope and organisation, counts it against the rate limits, and logs it under the request
id of the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlencode

import msgspec

from coatcheck.domain.errors import CoatcheckError
from coatcheck.http.request import RESPONSE_SLOT, ResponseSlot
from coatcheck.http.response import ASGIApp, Message, RawHeaders, Scope


@dataclass(frozen=True, slots=True)
class ApiEvent:
    """One event. ``id`` is set if the server stores it, so that a client can resume after it."""

    name: str
    id: str | None
    data: str

    def json(self) -> Any:
        return msgspec.json.decode(self.data)


Events = AsyncGenerator[ApiEvent | None, None]


async def read_events(pieces: AsyncIterator[bytes]) -> Events:
    """Yield the events of a stream, and None for each keep-alive comment."""
    unread = b""
    try:
        async for piece in pieces:
            unread += piece
            *blocks, unread = unread.split(b"\n\n")
            for block in blocks:
                yield _read(block.decode())
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()  # the reader may have left early


def _read(block: str) -> ApiEvent | None:
    fields: dict[str, str] = {}
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
    if "event" not in fields:
        return None
    return ApiEvent(fields["event"], fields.get("id"), fields.get("data", ""))


Query = Mapping[str, str | int | None]
_JSON: Final = (b"content-type", b"application/json")


class ApiProblem(CoatcheckError):
    """An error response of the API. A page that does not catch it becomes an error page."""

    code = "api_problem"

    def __init__(self, status: int, body: bytes, retry_after: str | None = None) -> None:
        problem = _read_problem(body)
        self.status = status
        self.problem_code = str(problem.get("code") or "error")
        self.detail = str(problem.get("detail") or "The API gave no reason.")
        self.details = [each for each in problem.get("details") or [] if isinstance(each, dict)]
        self.request_id = problem.get("requestId")
        self.retry_after = retry_after
        super().__init__(self.detail)


@dataclass(frozen=True, slots=True)
class Answered:
    """A complete, successful response of the API."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body) if self.body else None


@dataclass(frozen=True, slots=True)
class Opened:
    """A response with a streamed body; the caller must read or close ``pieces``."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]


class Api:
    """The API with one caller's credential. ``head``: the page was requested with HEAD.

    ``response_slot`` is that of the page, if it has one; its calls take no second slot.
    """

    def __init__(
        self,
        app: ASGIApp,
        credential: bytes,
        request_id: str,
        *,
        head: bool = False,
        response_slot: ResponseSlot | None = None,
    ) -> None:
        self._app = app
        self._head = head
        self._response_slot = response_slot
        self._headers: RawHeaders = [
            (b"authorization", b"Bearer " + credential),
            (b"x-request-id", request_id.encode("latin-1")),
        ]

    async def get(self, path: str, query: Query | None = None) -> Any:
        """GET ``path`` and decode the response. Raises ApiProblem. Query fields may be None."""
        return (await self.call("GET", path, query=query)).json()

    async def post(self, path: str, json: Any = None) -> Any:
        """POST ``json``, if given, and decode the response. Raises ApiProblem."""
        return (await self.call("POST", path, json=json)).json()

    async def patch(self, path: str, json: Any) -> Any:
        return (await self.call("PATCH", path, json=json)).json()

    async def delete(self, path: str) -> Any:
        return (await self.call("DELETE", path)).json()

    async def call(
        self, method: str, path: str, *, query: Query | None = None, json: Any = None
    ) -> Answered:
        """Call the API and read the whole response. Raises ApiProblem for 400 and above.

        ``path`` must be percent-encoded where needed (``dashboard.paths.to``).
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
        """GET a large or endless response as a stream. Raises ApiProblem for 400 and above."""
        # Nobody reads or closes the pieces of a HEAD request. So the call must end by itself, and
        # the queue has room for its one message after the start.
        method, unread = ("HEAD", 2) if self._head else ("GET", 1)
        scope = self._scope(method, path, query, headers, has_body=False)
        messages: asyncio.Queue[Message | None] = asyncio.Queue(maxsize=unread)

        async def answer() -> None:
            try:
                await self._app(scope, _Requested(b"").receive, messages.put)
            except asyncio.CancelledError:
                raise  # the reader is gone
            except BaseException:
                await messages.put(None)
                raise
            await messages.put(None)

        answering = asyncio.create_task(answer())
        try:
            start = await messages.get()
            if start is None:
                await answering
                raise AssertionError("a response without a start")
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
        held = {} if self._response_slot is None else {RESPONSE_SLOT: self._response_slot}
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
    """Sends the request body, then never disconnects: a reader that leaves cancels the task."""

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
        await answering  # raises its error, if it failed
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)


def _by_name(headers: RawHeaders) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}


def _read_problem(body: bytes) -> dict[str, Any]:
    try:
        problem = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return problem if isinstance(problem, dict) else {}
