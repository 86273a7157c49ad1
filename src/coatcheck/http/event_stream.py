"""Server-Sent Events: the events of one job or batch, and the changes of many.

Only stored events have an ``id``: log lines, output and alerts. A reader that lost its connection
sends the last id that it saw, and then misses nothing and gets nothing twice. States and progress
show the present; the stream ends after the event ``end``.
"""

from __future__ import annotations

import asyncio
import base64
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from coatcheck.core import Engine
from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.errors import DatabaseUnavailable, JobNotFound, OutcomeUnknown
from coatcheck.domain.job import JobEvent, JobView
from coatcheck.domain.limits import EVENTS_PAGE_BYTES_MAX
from coatcheck.http.lifecycle import ServerDraining
from coatcheck.http.response import RawHeaders, StreamResponse

if TYPE_CHECKING:
    from coatcheck.http.watching import Watched, WatchedResource

KEEP_ALIVE_SECONDS: Final = 15.0
RECONNECT_MILLISECONDS: Final = 1_000
_PAGE_EVENTS: Final = 50
KEEP_ALIVE: Final = b": still here\n\n"
RECONNECT: Final = b"event: reconnect\ndata: {}\n\n"
_HEADERS: Final[RawHeaders] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # a proxy that buffers would delay the events
]
_encode: Final = msgspec.json.Encoder().encode

V = TypeVar("V", bound="Watched")


def response(pieces: AsyncIterator[bytes]) -> StreamResponse:
    """A response that streams events."""
    return StreamResponse(HTTPStatus.OK, pieces, _HEADERS, RECONNECT)


async def follow(
    resource: WatchedResource[V], draining: ServerDraining, view: V, after: int
) -> AsyncIterator[bytes]:
    """The events of one thing after the one with the number ``after``, until it has ended."""
    yield b"retry: %d\n\n" % RECONNECT_MILLISECONDS
    try:
        async with aclosing(_events(resource, draining, view, after)) as events:
            async for piece in events:
                yield piece
    except JobNotFound:
        return  # it was deleted meanwhile
    except (DatabaseUnavailable, OutcomeUnknown):  # the same for a reader
        yield RECONNECT


async def _events(
    resource: WatchedResource[V], draining: ServerDraining, view: V, after: int
) -> AsyncGenerator[bytes, None]:
    phase = progress = None
    sent_at = time.monotonic()
    with resource.engine.watch(view.id) as watch:
        while True:
            # The thing before its events: if it has ended, all of its events are stored.
            view = await resource.read(view.id, view.org)
            pieces = []
            if not view.terminal and phase != resource.phase(view):
                pieces.append(event("state", await resource.show(view)))
            phase = resource.phase(view)
            async for page in resource.events_after(view, after):
                after = page[-1].seq
                yield b"".join([*pieces, *map(_event_of, page)])
                sent_at = time.monotonic()
                pieces.clear()
            reported = resource.progress(view)
            if reported is not None and reported != progress:
                pieces.append(event("progress", reported))
            progress = reported
            drained = draining.begun
            if view.terminal:
                pieces.append(event("end", await resource.show(await resource.at_end(view))))
            elif drained:
                pieces.append(RECONNECT)
            elif not pieces and time.monotonic() - sent_at >= KEEP_ALIVE_SECONDS:
                pieces.append(KEEP_ALIVE)
            if pieces:
                yield b"".join(pieces)
                sent_at = time.monotonic()
            if view.terminal or drained:
                return
            async with draining.cut_short():
                await watch.changed(KEEP_ALIVE_SECONDS)


async def pages(engine: Engine, view: JobView, after: int) -> AsyncIterator[Sequence[JobEvent]]:
    """A job's stored events, a page at a time: all of them may not fit into memory."""
    while page := await engine.events(
        view.id, org=view.org, after=after, limit=_PAGE_EVENTS, bytes_max=EVENTS_PAGE_BYTES_MAX
    ):
        after = page[-1].seq
        yield page
        if len(page) < _PAGE_EVENTS and _size(page) < EVENTS_PAGE_BYTES_MAX:
            return


def _size(page: Sequence[JobEvent]) -> int:
    return sum(len(each.data) for each in page)


def event(name: str, data: Any) -> bytes:
    """One event of a stream."""
    # In JSON a line break can only be white space between tokens.
    line = _encode(data).replace(b"\n", b" ").replace(b"\r", b" ")
    return b"event: %b\ndata: %b\n\n" % (name.encode(), line)


def _event_of(stored: JobEvent) -> bytes:
    name = "chunk"
    data: dict[str, Any]
    match stored.kind:
        case "log" | "alert":
            name, data = stored.kind, {"at": stored.at} | msgspec.json.decode(stored.data)
        case "text":
            data = {"kind": "text", "data": stored.data.decode()}
        case "json":
            data = {"kind": "json", "data": msgspec.Raw(stored.data)}
        case "binary":
            data = {"kind": "binary", "data": base64.b64encode(stored.data).decode()}
        case other:
            raise AssertionError(f"unknown kind of event: {other!r}")
    return b"id: %d\n" % stored.seq + event(name, data)


CHANGES_PAGE: Final = 50
CHANGES_WALKED_MAX: Final = 10_000
"""How many jobs, the newest, are searched for changes."""
_REST_SECONDS_MIN: Final = 0.2
_REST_FACTOR: Final = 20

T = TypeVar("T")
LookForChanges = Callable[[ChangeCursor], Awaitable[Changes[T]]]
"""Reads at most ``CHANGES_PAGE`` changes after the cursor."""
ShowChange = Callable[[T], Awaitable[Any]]


class ChangeStream:
    """Streams the changes of many jobs."""

    def __init__(self, engine: Engine, draining: ServerDraining) -> None:
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
        """Events with this ``name`` after the cursor: for ``seconds``, or until the reader
        disconnects."""
        yield b"retry: %d\n\n" % RECONNECT_MILLISECONDS
        try:
            async with aclosing(self._events(name, look, show, cursor, seconds)) as events:
                async for piece in events:
                    yield piece
        except (DatabaseUnavailable, OutcomeUnknown):  # the same for a reader
            yield RECONNECT

    async def _events(
        self,
        name: str,
        look: LookForChanges[T],
        show: ShowChange[T],
        cursor: ChangeCursor,
        seconds: float | None,
    ) -> AsyncGenerator[bytes, None]:
        began_at = sent_at = time.monotonic()
        is_first = True
        with self._engine.watch_all() as watch:
            while True:
                looked_at = time.monotonic()
                # The rest of a look that was cut off does not show changes that came since.
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
                is_silent = time.monotonic() - sent_at >= KEEP_ALIVE_SECONDS
                if not pieces and (is_first or is_silent or ends):
                    # An id without data is not an event: it only moves the reader's position.
                    pieces.append(_id(cursor) + b"\n" + KEEP_ALIVE)
                if ends:
                    pieces.append(RECONNECT)
                is_first = False
                if pieces:
                    yield b"".join(pieces)
                    sent_at = time.monotonic()
                if ends:
                    return
                if is_whole and is_up_to_now:
                    async with self._draining.cut_short():
                        ends_at = math.inf if seconds is None else began_at + seconds
                        await asyncio.sleep(max(0.0, min(rest, ends_at - time.monotonic())))
                        await watch.changed(max(0.0, ends_at - time.monotonic()))


def _id(cursor: ChangeCursor) -> bytes:
    return b"id: %b\n" % str(cursor).encode("ascii")
