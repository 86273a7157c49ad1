"""Readiness checks, and draining: what a server that stops says to requests it holds open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from coatcheck.core import Engine
from coatcheck.db.connection import Connection
from coatcheck.db.migrate import check_schema
from coatcheck.domain.errors import SchemaMismatch
from coatcheck.http.routes.health import Check, remembered
from coatcheck.settings import Settings

_BLOB_PROBE_SECONDS: Final = 10.0


class Readiness:
    """The checks, and the connection that they use."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._engine = engine
        self._db = Connection(settings.database_url, name="readiness")

    def checks(self) -> Mapping[str, Check]:
        return {
            "database": self._database,
            "schema": self._schema,
            "blobs": remembered(self._blobs, _BLOB_PROBE_SECONDS),
        }

    async def close(self) -> None:
        await self._db.close()

    async def _database(self) -> str:
        try:
            await self._db.run(check_schema)
        except SchemaMismatch:
            return "reachable"  # whether it holds the right tables is the other check's to say
        return "reachable"

    async def _schema(self) -> str:
        return await self._db.run(check_schema)

    async def _blobs(self) -> str:
        await self._engine.blobs.probe()
        return "writable"


class ServerDraining:
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
