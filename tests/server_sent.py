"""Reads Server-Sent Events, as the tests want them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx2


class Sent(NamedTuple):
    """One event, or an ``id`` alone; ``data`` is then None."""

    name: str
    data: Any
    id: str | None


async def sent_by(answer: httpx2.Response) -> AsyncIterator[Sent]:
    """The events of a stream, as they come."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
            continue
        if "id" in fields or "data" in fields:
            data = json.loads(fields["data"]) if "data" in fields else None
            yield Sent(fields.get("event", "message"), data, fields.get("id"))
        fields = {}
