"""A job as Server-Sent Events: its states and counts as they change, until its run has ended."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from coatcheck.core import Engine
from coatcheck.domain.errors import DatabaseUnavailable, JobNotFound, OutcomeUnknown
from coatcheck.http import event_stream
from coatcheck.http.draining import Draining
from coatcheck.http.event_stream import KEEP_ALIVE, RECONNECT, RECONNECT_MILLISECONDS, event
from coatcheck.products.batches import presenter as showing
from coatcheck.products.batches.model import BatchView
from coatcheck.products.batches.repository import Batches
from coatcheck.products.batches.schemas import BatchProgress


class Following:
    """Makes streams of jobs' events."""

    def __init__(self, engine: Engine, draining: Draining) -> None:
        self._engine = engine
        self._draining = draining

    async def follow(self, view: BatchView) -> AsyncIterator[bytes]:
        """``state`` and ``progress`` as they are now and whenever they change, then ``end``."""
        yield b"retry: %d\n\n" % RECONNECT_MILLISECONDS
        try:
            async with aclosing(self._story(view)) as story:
                async for piece in story:
                    yield piece
        except JobNotFound:
            return  # deleted while it was followed
        except (DatabaseUnavailable, OutcomeUnknown):  # to who reads, they are the same
            yield RECONNECT

    async def _story(self, view: BatchView) -> AsyncGenerator[bytes, None]:
        state: tuple[str, str] | None = None
        shown: BatchProgress | None = None
        said_at = time.monotonic()
        with self._engine.watch(view.id) as watch:
            while True:
                view = await self._engine.extension(Batches).get(view.id, org=view.org)
                ended, drained = view.status.terminal, self._draining.begun
                pieces = []
                if not ended and state != (view.current.id, view.status.value):
                    pieces.append(event("state", showing.job(view)))
                state = (view.current.id, view.status.value)
                progress = showing.job_progress(view)
                if progress != shown:
                    pieces.append(event("progress", progress))
                shown = progress
                if ended:
                    pieces.append(event("end", showing.job(view)))
                elif drained:
                    pieces.append(RECONNECT)
                elif not pieces and self._has_been_silent(said_at):
                    pieces.append(KEEP_ALIVE)
                if pieces:
                    yield b"".join(pieces)
                    said_at = time.monotonic()
                if ended or drained:
                    return
                async with self._draining.cut_short():
                    await watch.changed(event_stream.KEEP_ALIVE_SECONDS)

    @staticmethod
    def _has_been_silent(said_at: float) -> bool:
        return time.monotonic() - said_at >= event_stream.KEEP_ALIVE_SECONDS
