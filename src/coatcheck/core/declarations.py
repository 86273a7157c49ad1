"""Keeps an engine's defaults at what workers' code declares of their endpoints.

So that whoever submits without the code at hand (the control plane, ``coatcheck submit``) gets the
endpoint's own lane, retries and keep times.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from coatcheck.core.queries import services as service_store
from coatcheck.core.queries.services import CODE_ORG
from coatcheck.db.connection import Line
from coatcheck.domain.catalogue import EndpointSpec
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.retry import DATABASE_BACKOFF

_log = logging.getLogger(__name__)


class Declarations:
    """Reads what is declared when it starts, and again whenever something of it changed."""

    def __init__(self, line: Line, learn: Callable[[Sequence[EndpointSpec]], None]) -> None:
        self._line = line
        self._learn = learn
        self._outdated = False
        self._tried = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Learn what is declared; returns once it is known, or after the first failure (it keeps
        trying)."""
        if self._reader is None and not self._tried.is_set():
            self.read_soon()
        await self._tried.wait()

    def heard(self, payload: str) -> None:
        """A notification: these services changed, or (empty) any may have."""
        if not payload or any(word.startswith(f"{CODE_ORG}/") for word in payload.split(",")):
            self.read_soon()

    def read_soon(self) -> None:
        """Something may have changed: read again, once for all who say so meanwhile."""
        self._outdated = True
        if self._reader is None:
            self._reader = asyncio.create_task(self._read_while_outdated())

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _read_while_outdated(self) -> None:
        try:
            failures = 0
            while self._outdated:
                self._outdated = False
                try:
                    services = await service_store.list_code(self._line)
                except (DatabaseUnavailable, OutcomeUnknown) as error:
                    _log.info("what code declares could not be read: %s", error)
                    self._outdated = True
                    self._tried.set()
                    await asyncio.sleep(DATABASE_BACKOFF.delay(failures, random.random()))
                    failures += 1
                else:
                    self._learn([spec for service in services for spec in service.endpoints])
        finally:
            self._tried.set()
            self._reader = None
