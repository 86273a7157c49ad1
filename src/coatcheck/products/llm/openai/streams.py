"""Streams as OpenAI writes them: Server-Sent Events, of which those that were kept have an id."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Protocol

import msgspec

from coatcheck.products.llm.problem_formats import openai_error

STILL_HERE: Final = b": still here\n"
"""A comment without an empty line after it: the openai package takes that for the end of an event,
of one without data that it fails to read, once any event has had an id."""
_DONE: Final = b"data: [DONE]\n\n"
_encode: Final = msgspec.json.Encoder().encode


class EventMaker(Protocol):
    """Makes events of the objects of one attempt's stream, in their order, from its first on."""

    def events(self, data: bytes) -> list[bytes]:
        """What to send for one object; nothing if it adds nothing. Raises Untranslatable."""

    def end(self) -> list[bytes]:
        """What to send after the last one."""


class ServerSentEvents:
    """A stream that ends with ``[DONE]``."""

    media_type = b"text/event-stream"

    def __init__(self, make: Callable[[], EventMaker]) -> None:
        self._make = make
        self._maker = make()

    def output(self, seq: int | None, data: bytes) -> bytes:
        events = self._maker.events(data)
        if seq is not None and events:
            # Of several the last: who has its id has them all.
            events[-1] = b"id: %d\n" % seq + events[-1]
        return b"".join(events)

    def begin_again(self) -> None:
        self._maker = self._make()

    def idle(self) -> bytes:
        return STILL_HERE

    def error(self, status: HTTPStatus, code: str, message: str) -> bytes:
        return data_event({"error": openai_error(status, code, message)})

    def end(self) -> bytes:
        return b"".join([*self._maker.end(), _DONE])


def data_event(value: object) -> bytes:
    """An event without a name."""
    return b"data: %b\n\n" % _encode(value)
