"""Keeps the embedded PostgreSQL of ``up`` running: starts it, and restarts it if it dies."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from coatcheck.cli.console import say
from coatcheck.db.embedded import EmbeddedPostgres, EmbeddedPostgresError, Phase, StopMode
from coatcheck.domain.retry import Backoff

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
        """Returns when it accepts connections. Raises EmbeddedPostgresError."""
        await asyncio.to_thread(self._server.start, _report)
        self._watch = asyncio.create_task(self._keep_running(), name="keep PostgreSQL running")

    async def stop(self, mode: StopMode) -> None:
        self._stopping.set()
        if self._watch is not None:
            await self._watch  # a restart under way must end before a stop can begin
        await asyncio.to_thread(self._server.stop, mode)

    async def _keep_running(self) -> None:
        failures = 0
        while not await self._stop_requested_within(_LOOK_SECONDS):
            if self._server.is_running():
                continue
            say("PostgreSQL exited; restarting it")
            try:
                await asyncio.to_thread(self._server.start, _report)
            except EmbeddedPostgresError as error:
                delay = _RESTART_BACKOFF.delay(failures, 0.0)
                failures += 1
                say(f"cannot start PostgreSQL: {error}; retrying in {delay:g} s")
                await self._stop_requested_within(delay)
            else:
                failures = 0
                say("PostgreSQL is running again")

    async def _stop_requested_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()


def _report(phase: Phase, seconds: float) -> None:
    if phase is not Phase.PREPARING or seconds > _LONG_SECONDS:
        lasting = f" ({seconds:.0f} s)" if seconds > _LONG_SECONDS else ""
        say(f"{phase.value}{lasting}")
