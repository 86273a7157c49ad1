"""A reader of Server-Sent Events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2


@dataclass(frozen=True)
class Event:
    """One event. ``id`` is there if the server keeps it."""

    name: str
    data: Any
    id: str | None


async def events_of(answer: httpx2.Response) -> AsyncIterator[Event]:
    """The whole events of a stream; one that was cut off in the middle is none."""
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
