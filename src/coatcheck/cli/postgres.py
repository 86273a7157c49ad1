"""The embedded PostgreSQL as ``up`` keeps it: started with words, and started again if it dies."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from coatcheck.cli.console import say
from coatcheck.domain.retry import Backoff
from coatcheck.store.embedded import EmbeddedPostgres, EmbeddedPostgresError, Phase, StopMode

_LOOK_SECONDS: Final = 0.5
_RESTART_BACKOFF: Final = Backoff(base_seconds=1.0, cap_seconds=30.0, jitter=0.0)
_LONG_SECONDS: Final = 2.0


class KeptPostgres:
    """Starts the server, watches it, and stops it. Its blocking calls run in threads."""

    def __init__(self, folder: Path) -> None:
        self._server = EmbeddedPostgres(folder)
        self._stopping = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    @property
    def dsn(self) -> str:
        return self._server.dsn

    @property
    def log_path(self) -> Path:
        return self._server.log_path

    async def start(self) -> None:
        """Returns when it serves. Raises EmbeddedPostgresError."""
        await asyncio.to_thread(self._server.start, _tell)
        self._watch = asyncio.create_task(self._keep_running(), name="keep PostgreSQL running")

    async def stop(self, mode: StopMode) -> None:
        self._stopping.set()
        if self._watch is not None:
            await self._watch  # a restart under way must end before a stop can begin
        await asyncio.to_thread(self._server.stop, mode)

    async def _keep_running(self) -> None:
        failures = 0
        while not await self._told_to_stop_within(_LOOK_SECONDS):
            if self._server.is_running():
                continue
            say("PostgreSQL ended; starting it again")
            try:
                await asyncio.to_thread(self._server.start, _tell)
            except EmbeddedPostgresError as error:
                delay = _RESTART_BACKOFF.delay(failures, 0.0)
                failures += 1
                say(f"PostgreSQL does not start: {error}; trying again in {delay:g} s")
                await self._told_to_stop_within(delay)
            else:
                failures = 0
                say("PostgreSQL runs again")

    async def _told_to_stop_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()


def _tell(phase: Phase, seconds: float) -> None:
    if phase is not Phase.PREPARING or seconds > _LONG_SECONDS:
        lasting = f" ({seconds:.0f} s)" if seconds > _LONG_SECONDS else ""
        say(f"{phase.value}{lasting}")
