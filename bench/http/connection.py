"""A minimal keep-alive HTTP connection, because the client shares the server's cores."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes


class Connection:
    """Sends one request at a time and reads its answer, which must have a Content-Length."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Answer:
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status_line, *fields = head.split(b"\r\n")
        length = 0
        for field in fields:
            name, _, value = field.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return Answer(int(status_line.split()[1]), await self._reader.readexactly(length))

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()
