"""Readiness checks, and draining: how a server that stops ends its open responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from coatcheck.core import Engine
from coatcheck.db.migrate import check_schema
from coatcheck.domain.errors import SchemaMismatch
from coatcheck.http.routes.health import Check, remembered

_BLOB_PROBE_SECONDS: Final = 10.0


class Readiness:
    """The readiness checks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._db = engine.database.pooled("readiness")

    def checks(self) -> Mapping[str, Check]:
        return {
            "database": self._database,
            "schema": self._schema,
            "blobs": remembered(self._blobs, _BLOB_PROBE_SECONDS),
        }

    async def _database(self) -> str:
        try:
            await self._db.run(check_schema)
        except SchemaMismatch:
            return "reachable"  # the check of the schema reports this
        return "reachable"

    async def _schema(self) -> str:
        return await self._db.run(check_schema)

    async def _blobs(self) -> str:
        await self._engine.blobs.probe()
        return "writable"


class ServerDraining:
    """Whether this server is stopping. Waits of open responses end when it begins to."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._waits: set[asyncio.Timeout] = set()
        self._callbacks: set[Callable[[], None]] = set()

    @property
    def waits(self) -> int:
        """How many waits it would cut short now."""
        return len(self._waits)

    @property
    def begun(self) -> bool:
        return self._begun.is_set()

    def begin(self) -> None:
        """End every wait early. Call it from the event loop's thread; calling it again is safe."""
        self._begun.set()
        for wait in tuple(self._waits):
            _end_now(wait)
        for callback in tuple(self._callbacks):
            callback()

    @contextmanager
    def on_begin(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call ``callback`` when the drain begins: for code that waits so often that ``cut_short``
        would cost too much. Check ``begun`` before the first wait."""
        self._callbacks.add(callback)
        try:
            yield
        finally:
            self._callbacks.discard(callback)

    async def wait(self) -> None:
        """Return when the drain has begun."""
        await self._begun.wait()

    @asynccontextmanager
    async def cut_short(self) -> AsyncIterator[None]:
        """Leave the block when the drain begins, or at its first ``await`` if it has begun.

        Check ``begun`` afterwards. Wrap only the wait itself: no statement that must not be
        interrupted, and no ``yield``.
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
                raise  # a timeout inside the block


def _end_now(wait: asyncio.Timeout) -> None:
    if not wait.expired():
        wait.reschedule(asyncio.get_running_loop().time())
