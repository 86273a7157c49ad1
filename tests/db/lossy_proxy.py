"""A proxy before PostgreSQL that can lose the server's answer after the server has acted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit, urlunsplit

_CHUNK_BYTES = 65_536
COPY_DONE = b"c\x00\x00\x00\x04"
"""What a client sends once it has sent all rows of a COPY."""


class LossyProxy:
    """Passes everything on, until told to lose answers; then until told to cut its clients off."""

    def __init__(self, dsn: str) -> None:
        self.behind = urlsplit(dsn)
        self._clients: set[asyncio.StreamWriter] = set()
        self._awaited: bytes | None = None
        self._losing = False
        self.dsn = ""

    def lose_answers(self, after: bytes) -> None:
        """Drop what the server says once a client has sent ``after``."""
        self._awaited = after

    def cut(self) -> None:
        """Close every client's connection; new ones work again."""
        self._losing = False
        self._awaited = None
        for client in self._clients:
            client.close()

    async def _open_server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        query = parse_qs(self.behind.query)
        port = int(query.get("port", [self.behind.port or 5432])[0])
        host = query.get("host", [self.behind.hostname or "127.0.0.1"])[0]
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await self._open_server()
        self._clients.add(writer)
        try:
            async with asyncio.TaskGroup() as directions:
                directions.create_task(self._ask(reader, server_writer))
                directions.create_task(self._answer(server_reader, writer))
        finally:
            self._clients.discard(writer)
            for each in (server_writer, writer):
                each.close()

    async def _ask(self, client: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        while piece := await _read(client):
            if self._awaited is not None and self._awaited in piece:
                self._losing = True
            server.write(piece)
        server.close()

    async def _answer(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while piece := await _read(server):
            if not self._losing and not client.is_closing():
                client.write(piece)
        client.close()

    @classmethod
    @asynccontextmanager
    async def before(cls, dsn: str) -> AsyncIterator[LossyProxy]:
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


async def _read(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.read(_CHUNK_BYTES)
    except ConnectionError:
        return b""
