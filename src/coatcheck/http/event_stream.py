"""Server-Sent Events: the events of one job, and the changes of many jobs.

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
from typing import Any, Final, TypeVar

import msgspec

from coatcheck.core import Engine
from coatcheck.domain.changes import ChangeCursor, Changes
from coatcheck.domain.errors import DatabaseUnavailable, JobNotFound, OutcomeUnknown
from coatcheck.domain.job import JobEvent, JobView
from coatcheck.domain.limits import EVENT_RESULT_BYTES_MAX, EVENTS_PAGE_BYTES_MAX
from coatcheck.http.lifecycle import ServerDraining

KEEP_ALIVE_SECONDS: Final = 15.0
RECONNECT_MILLISECONDS: Final = 1_000
_PAGE_EVENTS: Final = 50
KEEP_ALIVE: Final = b": still here\n\n"
RECONNECT: Final = b"event: reconnect\ndata: {}\n\n"
_encode: Final = msgspec.json.Encoder().encode

Show = Callable[[JobView], Awaitable[Any]]


class EventStream:
    """Streams the events of a job."""

    def __init__(self, engine: Engine, draining: ServerDraining) -> None:
        self._engine = engine
        self._draining = draining

    async def follow(self, view: JobView, show: Show, *, after: int) -> AsyncIterator[bytes]:
        """The events after the one with the number ``after``, until the job has ended."""
        yield b"retry: %d\n\n" % RECONNECT_MILLISECONDS
        try:
            async with aclosing(self._events(view, show, after)) as events:
                async for piece in events:
                    yield piece
        except JobNotFound:
            return  # its retention ended meanwhile
        except (DatabaseUnavailable, OutcomeUnknown):  # the same for a reader
            yield RECONNECT

    async def _events(self, view: JobView, show: Show, after: int) -> AsyncGenerator[bytes, None]:
        shown: JobView | None = None
        sent_at = time.monotonic()
        with self._engine.watch(view.id) as watch:
            while True:
                # The job before its events: if it has ended, all of its events are stored.
                view = await self._engine.look(view.id, org=view.org)
                pieces = []
                if _moved(shown, view) and not view.terminal:
                    pieces.append(event("state", await show(view)))
                # A page at a time: the events of a job may not fit into memory.
                while page := await self._page(view, after):
                    after = page[-1].seq
                    yield b"".join([*pieces, *map(_event_of, page)])
                    sent_at = time.monotonic()
                    pieces.clear()
                    if len(page) < _PAGE_EVENTS and _size(page) < EVENTS_PAGE_BYTES_MAX:
                        break
                if _advanced(shown, view):
                    data = {"fraction": _rounded(view.progress), "note": view.progress_note}
                    pieces.append(event("progress", data))
                shown = view
                drained = self._draining.begun
                if view.terminal:
                    pieces.append(event("end", await show(await self._with_result(view))))
                elif drained:
                    pieces.append(RECONNECT)
                elif not pieces and time.monotonic() - sent_at >= KEEP_ALIVE_SECONDS:
                    pieces.append(KEEP_ALIVE)
                if pieces:
                    yield b"".join(pieces)
                    sent_at = time.monotonic()
                if view.terminal or drained:
                    return
                async with self._draining.cut_short():
                    await watch.changed(KEEP_ALIVE_SECONDS)

    async def _with_result(self, view: JobView) -> JobView:
        """The job with its result, unless that is too long for an event. Readers then fetch it by
        URL, where they share one copy in memory."""
        if (view.result_bytes or 0) > EVENT_RESULT_BYTES_MAX:
            return view
        return await self._engine.with_result(view)

    async def _page(self, view: JobView, after: int) -> Sequence[JobEvent]:
        return await self._engine.events(
            view.id,
            org=view.org,
            after=after,
            limit=_PAGE_EVENTS,
            bytes_max=EVENTS_PAGE_BYTES_MAX,
        )


def _size(page: Sequence[JobEvent]) -> int:
    return sum(len(each.data) for each in page)


def _rounded(progress: float | None) -> float | None:
    """Without the digits beyond the column's single precision."""
    return None if progress is None else round(progress, 6)


def _moved(shown: JobView | None, view: JobView) -> bool:
    return shown is None or (shown.state, shown.attempts) != (view.state, view.attempts)


def _advanced(shown: JobView | None, view: JobView) -> bool:
    if view.progress is None:
        return False
    before = (None, None) if shown is None else (shown.progress, shown.progress_note)
    return before != (view.progress, view.progress_note)


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
