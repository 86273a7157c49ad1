"""A proxy before a blob server that spoils the first requests and lets the others through."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

Spoil = Callable[[asyncio.StreamWriter, bytes], Awaitable[None]]


@dataclass
class UnsteadyProxy:
    """``spoil`` answers the first ``times`` requests; ``requests`` are the first lines of all."""

    upstream: str
    spoil: Spoil
    times: int
    url: str = ""
    requests: list[str] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[UnsteadyProxy]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request a connection: the proxy need not know where an answer ends."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            self.requests.append(head.partition(b"\r\n")[0].decode())
            request = head[:-2] + b"Connection: close\r\n\r\n" + body
            if len(self.requests) <= self.times:
                await self.spoil(writer, request)
            else:
                writer.write(await self.forwarded(request))
                await writer.drain()
        writer.close()

    async def forwarded(self, request: bytes) -> bytes:
        """What the server says to a request."""
        parts = urlsplit(self.upstream)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer


def answering(status: str, body: bytes = b"<Error><Code>Spoilt</Code></Error>") -> Spoil:
    """Answers with a status, such as ``503 Service Unavailable``."""

    async def spoil(writer: asyncio.StreamWriter, request: bytes) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    return spoil


async def hanging_up(writer: asyncio.StreamWriter, request: bytes) -> None:
    """Ends the connection without a word."""
    writer.transport.abort()


async def keeping_silent(writer: asyncio.StreamWriter, request: bytes) -> None:
    """Says nothing until the other side gives up."""
    await writer.wait_closed()
