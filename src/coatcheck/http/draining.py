"""The end of a control plane, as those see it who hold a request open: long-polls and streams.

Other requests end by themselves within the drain. These would not, so they are told: each then
answers at once with what its caller needs in order to go on elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager


class Draining:
    """Whether this process is about to end, and a way to wait for it."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._waits: set[asyncio.Timeout] = set()
        self._told: set[Callable[[], None]] = set()

    @property
    def begun(self) -> bool:
        return self._begun.is_set()

    def begin(self) -> None:
        """Cut every open wait short. From the event loop's own thread; may be called again."""
        self._begun.set()
        for wait in tuple(self._waits):
            _end_now(wait)
        for tell in tuple(self._told):
            tell()

    @contextmanager
    def telling(self, tell: Callable[[], None]) -> Iterator[None]:
        """Call ``tell`` when the drain begins: for one that waits so often that ``cut_short``
        would cost too much. Ask ``begun`` before the first wait."""
        self._told.add(tell)
        try:
            yield
        finally:
            self._told.discard(tell)

    async def wait(self) -> None:
        """Return when the drain has begun."""
        await self._begun.wait()

    @asynccontextmanager
    async def cut_short(self) -> AsyncIterator[None]:
        """Leave the block when the drain begins, or at its first ``await`` if it has begun.

        Ask ``begun`` afterwards. Wrap what waits and nothing else: not a statement that must not
        be cut in two, and no ``yield``.
        """
        wait = asyncio.timeout(None)
        try:
            async with wait:
                self._waits.add(wait)
                if self.begun:
                    _end_now(wait)
                try:
                    yield
                finally:
                    self._waits.discard(wait)
        except TimeoutError:
            if not wait.expired():
                raise  # a timeout of the block's own


def _end_now(wait: asyncio.Timeout) -> None:
    if not wait.expired():
        wait.reschedule(asyncio.get_running_loop().time())
