"""A proxy before PostgreSQL, which passes everything on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self
from urllib.parse import parse_qs, urlsplit, urlunsplit

_CHUNK_BYTES = 65_536


class Proxy:
    """Connects each client to the server of ``dsn``. Subclasses change what is passed on."""

    def __init__(self, dsn: str) -> None:
        self.behind = urlsplit(dsn)
        self._clients: set[asyncio.StreamWriter] = set()
        self.dsn = ""

    def cut(self) -> None:
        """Close every client's connection; new ones work again."""
        for client in self._clients:
            client.close()

    async def ask(self, client: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        """Pass on what a client says, until it is closed."""
        while piece := await read(client):
            server.write(piece)

    async def answer(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Pass on what the server says to a client, until it is closed."""
        while piece := await read(server):
            if not client.is_closing():
                client.write(piece)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await self._open_server()
        self._clients.add(writer)

        async def ask() -> None:
            await self.ask(reader, server_writer)
            server_writer.close()

        async def answer() -> None:
            await self.answer(server_reader, writer)
            writer.close()

        try:
            async with asyncio.TaskGroup() as directions:
                directions.create_task(ask())
                directions.create_task(answer())
        finally:
            self._clients.discard(writer)
            for each in (server_writer, writer):
                each.close()

    async def _open_server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        query = parse_qs(self.behind.query)
        port = int(query.get("port", [self.behind.port or 5432])[0])
        host = query.get("host", [self.behind.hostname or "127.0.0.1"])[0]
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    @classmethod
    @asynccontextmanager
    async def before(cls, dsn: str) -> AsyncIterator[Self]:
        """A proxy before the server of ``dsn``; its own ``dsn`` goes through it."""
        proxy = cls(dsn)
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        user = proxy.behind.netloc.rpartition("@")[0]
        proxy.dsn = urlunsplit(
            proxy.behind._replace(netloc=f"{user}@127.0.0.1:{port}", query="sslmode=disable")
        )
        try:
            yield proxy
        finally:
            server.close()
            proxy.cut()
            await server.wait_closed()


async def read(stream: asyncio.StreamReader) -> bytes:
    """The next piece of a stream; empty at its end, and if its connection broke."""
    try:
        return await stream.read(_CHUNK_BYTES)
    except ConnectionError:
        return b""
