"""A stream of all that changes among many jobs, as Server-Sent Events.

Each event shows how a job stands, and its ``id`` says behind which event the stream goes on after a
broken connection (``domain/changes.py``). The stream keeps nothing between two looks but that id:
to go on is to look again.

A look costs the same however much changed, so the stream rests after each for a multiple of
what it took. All streams of a server look over one connection, one at a time: the more
there are of them, the longer each waits, and the less often it looks.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, TypeVar

from coatcheck.core import Engine
from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.http.draining import Draining
from coatcheck.http.event_stream import (
    KEEP_ALIVE,
    KEEP_ALIVE_SECONDS,
    RECONNECT,
    RECONNECT_MILLISECONDS,
    event,
)

CHANGES_PAGE: Final = 50
CHANGES_WALKED_MAX: Final = 10_000
"""Among how many jobs, the newest, a look finds what has changed."""
_REST_SECONDS_MIN: Final = 0.2
_REST_FACTOR: Final = 20

T = TypeVar("T")
LookForChanges = Callable[[ChangeCursor], Awaitable[Changes[T]]]
"""A page of at most ``CHANGES_PAGE`` changes behind the cursor."""
ShowChange = Callable[[T], Awaitable[Any]]


class ChangeStream:
    """Makes streams of changes."""

    def __init__(self, engine: Engine, draining: Draining) -> None:
        self._engine = engine
        self._draining = draining

    async def follow(
        self,
        name: str,
        look: LookForChanges[T],
        show: ShowChange[T],
        cursor: ChangeCursor,
        *,
        seconds: float | None,
    ) -> AsyncIterator[bytes]:
        """Events called ``name`` behind the cursor, until the reader leaves, or for so long."""
        yield b"retry: %d\n\n" % RECONNECT_MILLISECONDS
        try:
            async with aclosing(self._told(name, look, show, cursor, seconds)) as told:
                async for piece in told:
                    yield piece
        except (DatabaseUnavailable, OutcomeUnknown):  # to who reads, they are the same
            yield RECONNECT

    async def _told(
        self,
        name: str,
        look: LookForChanges[T],
        show: ShowChange[T],
        cursor: ChangeCursor,
        seconds: float | None,
    ) -> AsyncGenerator[bytes, None]:
        began_at = said_at = time.monotonic()
        is_first = True
        with self._engine.watch_all() as watch:
            while True:
                looked_at = time.monotonic()
                # The rest of a look that was cut off tells nothing of what has changed since.
                is_up_to_now = cursor.until is None
                changes = await look(cursor)
                rest = max(_REST_SECONDS_MIN, _REST_FACTOR * (time.monotonic() - looked_at))
                is_whole = len(changes.items) < CHANGES_PAGE
                pieces = []
                for at, (uuid, item) in enumerate(changes.items, start=1):
                    cursor = ChangeCursor(cursor.since, changes.until, uuid)
                    if is_whole and at == len(changes.items):
                        cursor = ChangeCursor(changes.until)
                    pieces.append(_id(cursor) + event(name, await show(item)))
                if is_whole:
                    cursor = ChangeCursor(changes.until)
                is_over = seconds is not None and time.monotonic() - began_at >= seconds
                ends = is_whole and is_up_to_now and (is_over or self._draining.begun)
                is_silent = time.monotonic() - said_at >= KEEP_ALIVE_SECONDS
                if not pieces and (is_first or is_silent or ends):
                    # An id alone is no event: it moves on where the reader goes on.
                    pieces.append(_id(cursor) + b"\n" + KEEP_ALIVE)
                if ends:
                    pieces.append(RECONNECT)
                is_first = False
                if pieces:
                    yield b"".join(pieces)
                    said_at = time.monotonic()
                if ends:
                    return
                if is_whole and is_up_to_now:
                    async with self._draining.cut_short():
                        ends_at = math.inf if seconds is None else began_at + seconds
                        await asyncio.sleep(max(0.0, min(rest, ends_at - time.monotonic())))
                        await watch.changed(max(0.0, ends_at - time.monotonic()))


def _id(cursor: ChangeCursor) -> bytes:
    return b"id: %b\n" % str(cursor).encode("ascii")
