"""Follows a job's events over a connection of its own, which a test can break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx2
import msgspec


@dataclass(frozen=True)
class Event:
    """One block of the stream: an event, or a comment."""

    name: str | None = None
    data: Any = None
    id: str | None = None
    comment: str | None = None
    retry: int | None = None


class EventReader:
    """Reads the blocks of ``GET path`` one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._text = ""
        self._ended = False
        self.status = 0
        self.headers: dict[str, str] = {}

    @classmethod
    async def open(
        cls, client: httpx2.AsyncClient, path: str, headers: dict[str, str] | None = None
    ) -> Self:
        """Ask as ``client`` would, with its credential, and read the answer's head."""
        url = client.base_url
        follower = cls(*await asyncio.open_connection(url.host, url.port))
        lines = [f"GET {path} HTTP/1.1", f"Host: {url.host}"]
        fields = {"Authorization": client.headers["Authorization"], **(headers or {})}
        lines += [f"{name}: {value}" for name, value in fields.items()]
        follower.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = (await follower.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        follower.status = int(head[0].split(" ")[1])
        for line in filter(None, head[1:]):
            name, _, value = line.partition(":")
            follower.headers[name.lower()] = value.strip()
        return follower

    async def next(self) -> Event | None:
        """The next block; None when the stream has ended properly."""
        while "\n\n" not in self._text:
            if self._ended:
                assert self._text == "", "the stream ended in the middle of an event"
                return None
            size = int(await self.reader.readline(), 16)
            chunk = await self.reader.readexactly(size + 2)
            self._text += chunk[:size].decode()
            self._ended = size == 0
        block, _, self._text = self._text.partition("\n\n")
        return _parse(block)

    async def rest(self) -> list[Event]:
        """Every event to the end, without comments and the time to reconnect."""
        events = []
        while (event := await self.next()) is not None:
            if event.name is not None:
                events.append(event)
        return events

    async def until(self, name: str) -> list[Event]:
        """Every event up to the first of this name, and that one."""
        events: list[Event] = []
        while not events or events[-1].name != name:
            event = await self.next()
            assert event is not None, f"the stream ended without {name!r}"
            if event.name is not None:
                events.append(event)
        return events

    def break_off(self) -> None:
        """Cut the connection as a lost network would: without a word."""
        self.writer.transport.abort()


@asynccontextmanager
async def following(
    client: httpx2.AsyncClient, path: str, headers: dict[str, str] | None = None
) -> AsyncIterator[EventReader]:
    """A stream of events, closed when the block ends."""
    follower = await EventReader.open(client, path, headers)
    try:
        yield follower
    finally:
        follower.break_off()


def _parse(block: str) -> Event:
    fields: dict[str, str] = {}
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        assert name not in fields, f"{name!r} twice in one event"
        fields[name] = value.removeprefix(" ")
    if "" in fields:
        return Event(comment=fields[""])
    if "retry" in fields:
        return Event(retry=int(fields["retry"]))
    return Event(fields["event"], msgspec.json.decode(fields["data"]), fields.get("id"))
