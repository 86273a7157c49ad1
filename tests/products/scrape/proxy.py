"""A forward proxy on loopback: absolute-form requests and CONNECT, and what it was asked."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass
class Proxy:
    """What a test sees of its proxy. It connects to loopback, whatever name it is asked for."""

    port: int = 0
    asked: list[str] = field(default_factory=list)
    """The first line of each request that it got itself."""
    credentials: str = ""
    """``user:password`` that it wants; none if empty."""
    refusal: str = ""
    """The status line's end with which it answers CONNECT instead of connecting."""
    connections: int = 0

    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines}
        self.asked.append(first)
        if headers.pop("proxy-authorization", "") != self._wanted():
            return await _answer(writer, "407 Proxy Authentication Required")
        method, target, _ = first.split(" ")
        if method == "CONNECT":
            if self.refusal:
                return await _answer(writer, self.refusal)
            await self._tunnel(target, reader, writer)
            return False
        return await _forward(method, target, headers, writer)

    def _wanted(self) -> str:
        if not self.credentials:
            return ""
        return f"Basic {base64.b64encode(self.credentials.encode()).decode()}"

    async def _tunnel(
        self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        port = int(target.rpartition(":")[2])
        back, forth = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        async with asyncio.TaskGroup() as copying:
            copying.create_task(_copy(reader, forth))
            copying.create_task(_copy(back, writer))


async def _forward(
    method: str, target: str, headers: dict[str, str], writer: asyncio.StreamWriter
) -> bool:
    authority, slash, path = target.removeprefix("http://").partition("/")
    try:
        back, forth = await asyncio.open_connection("127.0.0.1", int(authority.rpartition(":")[2]))
    except OSError:
        return await _answer(writer, "502 Bad Gateway")
    lines = [f"{method} {slash}{path} HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items())]
    forth.write(("\r\n".join(lines) + "\r\nConnection: close\r\n\r\n").encode("latin-1"))
    forth.write_eof()
    await _copy(back, writer)
    return False


async def _answer(writer: asyncio.StreamWriter, status: str) -> bool:
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
    await writer.drain()
    return True


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def forward_proxy() -> AsyncIterator[Proxy]:
    """A proxy on a port of its own, until the block ends."""
    proxy = Proxy()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await proxy.serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the end of the block; asyncio would complain of a cancelled handler
        finally:
            tasks.discard(task)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
