"""A reader of Server-Sent Events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2


@dataclass(frozen=True)
class Event:
    """One event. It has an ``id`` if the server stores it."""

    name: str
    data: Any
    id: str | None


async def events_of(answer: httpx2.Response) -> AsyncIterator[Event]:
    """The complete events of a stream; a partial one does not count."""
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            yield Event(fields.get("event", "message"), _value(fields["data"]), fields.get("id"))
        fields = {}


def _value(data: str) -> Any:
    try:
        return json.loads(data)
    except json.JSONDecodeError:
        return data  # such as OpenAI's [DONE]
