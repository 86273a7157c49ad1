"""A proxy that cuts every event stream in the middle of its second output chunk."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.connections import break_off

MARK = b"event: chunk\n"
CUT_AT = 2


class CuttingProxy:
    """In front of the server at ``url``. A context manager; ``cuts`` counts what it has done."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname, parts.port)
        self.cuts = 0

    async def __aenter__(self) -> Self:
        self._served: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for connection in self._served:
            break_off(connection)
        await asyncio.gather(*self._served.values())

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._served[writer] = asyncio.create_task(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(*self._address)
        up = asyncio.create_task(self._pass_on(reader, requests))
        try:
            await self._pass_back(answers, writer)
        except ConnectionError:
            pass  # the client went first, as clients may
        finally:
            up.cancel()
            writer.close()
            requests.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            writer.write(piece)
        writer.close()

    async def _pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passed = b""
        while piece := await reader.read(65_536):
            before, passed = len(passed), passed + piece
            if passed.count(MARK) >= CUT_AT:
                at = -1
                for _ in range(CUT_AT):
                    at = passed.index(MARK, at + 1)
                writer.write(passed[before : at + len(MARK)])
                self.cuts += 1
                return
            writer.write(piece)
            await writer.drain()
