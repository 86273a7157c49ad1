"""A parser for the API's Server-Sent Events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class ApiEvent:
    """One event. ``id`` is set if the server stores it, so that a client can resume after it."""

    name: str
    id: str | None
    data: str

    def json(self) -> Any:
        return msgspec.json.decode(self.data)


Events = AsyncGenerator[ApiEvent | None, None]


async def read_events(pieces: AsyncIterator[bytes]) -> Events:
    """Yield the events of a stream, and None for each keep-alive comment."""
    unread = b""
    try:
        async for piece in pieces:
            unread += piece
            *blocks, unread = unread.split(b"\n\n")
            for block in blocks:
                yield _read(block.decode())
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()  # the reader may have left early


def _read(block: str) -> ApiEvent | None:
    fields: dict[str, str] = {}
    for line in block.split("\n"):
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
    if "event" not in fields:
        return None
    return ApiEvent(fields["event"], fields.get("id"), fields.get("data", ""))
