"""A server on loopback that a test scripts down to the bytes, and that remembers who called."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from tests.waiting import eventually_async


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key.lower() == name]
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None


Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def plain(
    body: bytes = b"", status: str = "200 OK", headers: tuple[tuple[str, str], ...] = ()
) -> Answer:
    """An answer with a length, after which the connection can be used again."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(status, (*headers, ("Content-Length", str(len(body))))) + body)

    return answer


def head(status: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


@dataclass
class UpstreamServer:
    """What a test sees of its server. ``answer`` may be changed at any time."""

    answer: Answer = field(default_factory=plain)
    port: int = 0
    connections: int = 0
    """How many were accepted, a byte read or not."""
    open_connections: int = 0
    requests: list[Request] = field(default_factory=list)
    server_names: list[str | None] = field(default_factory=list)
    """What TLS clients said whom they want, a connection each."""

    def url(self, path: str = "/", scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def until_left(self) -> None:
        """Wait until nobody is connected any more."""

        async def look() -> bool:
            return self.open_connections == 0

        await eventually_async(look, "every client closed its connection")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                await self.answer(request, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left: what some tests are about
        finally:
            self.open_connections -= 1
            writer.close()


@contextlib.asynccontextmanager
async def upstream_server(
    answer: Answer | None = None, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[UpstreamServer]:
    """A server on a port of its own, until the block ends."""
    server = UpstreamServer(answer or plain(b"{}", headers=(("Content-Type", "application/json"),)))
    if tls is not None:
        tls.sni_callback = lambda _socket, name, _context: server.server_names.append(name)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await server.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the end of the block; asyncio would complain of a cancelled handler
        finally:
            tasks.discard(task)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first, *lines = raw.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return Request(method, target, headers, await reader.readexactly(length))
