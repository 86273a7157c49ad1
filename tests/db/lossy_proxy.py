"""A proxy before PostgreSQL that can lose the server's answer after the server has acted."""

from __future__ import annotations

import asyncio

from tests.db.proxy import Proxy, read

COMMIT = b"COMMIT;"
"""What a client sends at the end of a transaction."""


class LossyProxy(Proxy):
    """Passes everything on, until told to lose answers; then until told to cut its clients off."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self._awaited: bytes | None = None
        self._losing = False

    def lose_answers(self, after: bytes) -> None:
        """Drop what the server says once a client has sent ``after``."""
        self._awaited = after

    def cut(self) -> None:
        """Close every client's connection; new ones work again, and lose nothing."""
        self._losing = False
        self._awaited = None
        super().cut()

    async def ask(self, client: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        while piece := await read(client):
            if self._awaited is not None and self._awaited in piece:
                self._losing = True
            server.write(piece)

    async def answer(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while piece := await read(server):
            if not self._losing and not client.is_closing():
                client.write(piece)
