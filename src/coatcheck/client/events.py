"""The events of a job's event stream."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import msgspec

from coatcheck.client.errors import UnexpectedAnswer

EVENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""The last event contains the job with its result, which has at most 16 MiB."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    ``name`` is ``state`` or ``end`` (``data`` is the job's JSON), ``progress`` (fraction, note),
    ``log`` (at, level, message, fields), ``chunk`` (``data`` is what the handler emitted: text as
    str, binary as bytes, else the JSON value), or ``alert`` (at, code, message). For many jobs it
    is ``job`` (``data`` is the job's JSON). A newer server may send others. Pass ``id`` to
    ``stream(..., after=id)`` to continue after this event; None if no stored event came yet.
    """

    name: str
    data: Any
    id: str | None


AsyncEvents = AsyncGenerator[Event, None]
Events = Generator[Event, None, None]


class Reader:
    """Decodes events across reconnections.

    ``last_id`` is where to resume. ``retry_seconds`` is how long the server wants a client to wait
    before it reconnects.
    """

    def __init__(self, after: str | None) -> None:
        self.last_id = after
        self.retry_seconds = 0.0
        self._shown: dict[str, tuple[Any, Any]] = {}

    def read(self, sent: httpx2.ServerSentEvent) -> Event | None:
        """The event, or None if it has no news for the caller."""
        if sent.retry is not None:
            self.retry_seconds = sent.retry / 1_000
        if sent.id:
            self.last_id = sent.id
        if not sent.data or sent.event == "reconnect":
            return None
        data = _decode(sent)
        if self._was_shown(sent.event, data):
            return None
        return Event(sent.event, data, self.last_id)

    def _was_shown(self, name: str, data: Any) -> bool:
        """Whether this repeats the last known state: every new connection starts with it."""
        match name:
            case "state":
                # The field names of one API, or the engine's own.
                now = (
                    data.get("status", data.get("state")),
                    data.get("attempt_count", data.get("attempts")),
                )
            case "progress":
                now = (data.get("fraction"), data.get("note"))
            case _:
                return False
        before, self._shown[name] = self._shown.get(name), now
        return before == now


def _decode(sent: httpx2.ServerSentEvent) -> Any:
    try:
        data = msgspec.json.decode(sent.data, type=dict[str, Any])
        return _emitted(data) if sent.event == "chunk" else data
    except (KeyError, TypeError, ValueError) as error:
        raise UnexpectedAnswer(f"the event {sent.event!r} cannot be decoded") from error


def _emitted(chunk: Mapping[str, Any]) -> Any:
    if chunk["kind"] == "binary":
        return base64.b64decode(chunk["data"], validate=True)
    return chunk["data"]
