"""A server with short bounds and a few routes, and a client that says exactly what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import msgspec

from coatcheck.http.bodies import check_content_type, read_json
from coatcheck.http.dispatch import Dispatcher
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.memory_budget import BodyBudget, ByteBudget
from coatcheck.http.protocol import Bounds
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, Response, StreamResponse, json_response
from coatcheck.http.routing import ResponseSpec, Route
from coatcheck.http.server import HttpServer, listen

GUARD_SECONDS = 30.0
"""Only a server that hangs reaches it."""
BODY_BYTES_MAX = 1_000
GET = b"GET /here HTTP/1.1\r\nhost: a\r\n\r\n"


@dataclass
class RouteServer:
    """What is served, and what of it a test can hold back and look at.

    Not a ``Deployment``: the protocol's bounds need neither a database nor a product.
    """

    port: int = 0
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    draining: ServerDraining = field(default_factory=ServerDraining)
    server: HttpServer | None = None
    left: asyncio.Event = field(default_factory=asyncio.Event)
    headers: list[dict[bytes, bytes]] = field(default_factory=list)

    async def here(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        return json_response({"path": request.path})

    async def echo(self, request: Request) -> Response:
        check_content_type(request)
        return json_response(read_json(await request.body(BODY_BYTES_MAX)))

    async def slow(self, request: Request) -> Response:
        self.entered.set()
        await self.release.wait()
        return json_response({"slow": "done"})

    async def poll(self, request: Request) -> Response:
        async with self.draining.cut_short():
            self.entered.set()
            await asyncio.Event().wait()
        return json_response({"resume": "later"}, status=202)

    async def large(self, request: Request) -> Response:
        return Response(200, b"x" * 8_000_000)

    async def endless(self, request: Request) -> StreamResponse:
        return StreamResponse(200, self._pieces(), [(b"content-type", b"text/plain")])

    async def _pieces(self) -> AsyncIterator[bytes]:
        try:
            while True:
                self.entered.set()
                yield b"still here"
                await asyncio.sleep(0.01)
        finally:
            self.left.set()


@asynccontextmanager
async def route_server(
    bounds: Bounds | None = None,
    *,
    bodies: BodyBudget | None = None,
    large_responses: ByteBudget | None = None,
) -> AsyncIterator[RouteServer]:
    """Serve it, until the test is over."""
    served = RouteServer()
    served.server = HttpServer(
        Dispatcher(_operations(served), _admit, bodies=bodies, large_responses=large_responses),
        drain_seconds=GUARD_SECONDS,
        draining=served.draining,
        bounds=bounds,
    )
    listening = listen("127.0.0.1", 0)
    served.port = listening.getsockname()[1]
    serving = asyncio.create_task(served.server.serve(sockets=[listening]))
    try:
        yield served
    finally:
        served.release.set()
        served.server.stop()
        await serving


def _operations(served: RouteServer) -> list[Route]:
    answers = [ResponseSpec(HTTPStatus.OK, "done")]
    return [
        Route(["GET"], "/here", "here", "Here.", served.here, answers, "test"),
        Route(["POST"], "/echo", "echo", "Echo.", served.echo, answers, "test"),
        Route(["GET", "POST"], "/slow", "slow", "Slow.", served.slow, answers, "test"),
        Route(["GET"], "/poll", "poll", "Poll.", served.poll, answers, "test"),
        Route(["GET"], "/large", "large", "Large.", served.large, answers, "test"),
        Route(["GET"], "/endless", "endless", "Endless.", served.endless, answers, "test"),
    ]


async def _admit(request: Request, route: Route) -> RawHeaders:
    raise AssertionError("every route is open")


@dataclass(frozen=True)
class Heard:
    """An answer, taken apart."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> Heard:
        """The next answer, of a known length."""
        async with asyncio.timeout(GUARD_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines)
            body = await self._reader.readexactly(int(headers["content-length"]))
        return Heard(int(first.split(" ")[1]), headers, body)

    async def exactly(self, size: int) -> bytes:
        async with asyncio.timeout(GUARD_SECONDS):
            return await self._reader.readexactly(size)

    async def end(self) -> bytes:
        """What is still said before the server hangs up."""
        async with asyncio.timeout(GUARD_SECONDS):
            return await self._reader.read()

    async def is_cut_off(self) -> bool:
        """Whether the server hangs up without another word."""
        try:
            return await self.end() == b""
        except ConnectionError:
            return True

    def break_off(self) -> None:
        """Leave without a word."""
        self._writer.transport.abort()

    async def keep_saying(self, data: bytes) -> None:
        """Until the connection breaks."""
        async with asyncio.timeout(GUARD_SECONDS):
            with suppress(ConnectionError):
                while True:
                    await self.say(data)
                    await asyncio.sleep(0.005)

    async def keep_reading(self) -> None:
        """Read a little at a time, until the connection breaks."""
        async with asyncio.timeout(GUARD_SECONDS):
            with suppress(ConnectionError):
                while await self._reader.read(100):
                    await asyncio.sleep(0.005)


@asynccontextmanager
async def connected(served: RouteServer) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def assert_problem(heard: Heard, status: int, code: str) -> None:
    """It is a problem as every other is, and the connection's last answer."""
    assert (heard.status, heard.json()["code"]) == (status, code)
    assert heard.headers["content-type"] == "application/problem+json"
    assert heard.headers["x-request-id"] == heard.json()["requestId"].lower()
    assert heard.headers["connection"] == "close"
