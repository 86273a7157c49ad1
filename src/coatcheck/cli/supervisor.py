"""Keeps a child process running: starts it, restarts it when it dies, stops it on request.

A child leads its own session, so that Ctrl-C in the terminal reaches only this process; it watches
its stdin to exit when we do (``process.end_with_supervisor``). Each run has a name that we choose,
so that a report of its death says which run it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from coatcheck.cli.command_errors import EXIT_MISCONFIGURED
from coatcheck.cli.console import say
from coatcheck.db.embedded import EmbeddedPostgres, EmbeddedPostgresError, Phase, StopMode
from coatcheck.domain.retry import Backoff

_SUPERVISOR_RESTART_BACKOFF: Final = Backoff(base_seconds=0.5, cap_seconds=30.0, jitter=0.0)
_HEALTHY_SECONDS: Final = 30.0
"""A child that ran this long was healthy: the restart delay starts over."""


class Child:
    """One ``coatcheck`` command, kept running until ``stop``."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Callable[[], Mapping[str, str]],
        on_reaped: Callable[[UUID], None] = lambda _: None,
    ) -> None:
        self.name = name
        self._arguments = arguments
        self._environment = environment
        self._on_reaped = on_reaped
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.gave_up = asyncio.Event()
        """Set when the child exits because of a wrong configuration."""

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_running(), name=f"keep {self.name} running")

    async def stop(self, seconds: float) -> None:
        """Send SIGTERM, and SIGKILL to its process group after ``seconds``. Returns when it has
        exited."""
        self._stopping.set()
        self._signal(signal.SIGTERM)
        if self._task is None:
            return
        done, _ = await asyncio.wait([self._task], timeout=seconds)
        if not done:
            say(f"the {self.name} did not stop within {seconds:g} s; killing it")
            self.kill()
        await self._task

    def kill(self) -> None:
        """Send SIGKILL to the child and every process it started."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    async def _keep_running(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            ending = await self._run_once()
            if self._stopping.is_set() or self.gave_up.is_set():
                return
            failures = 0 if time.monotonic() - began > _HEALTHY_SECONDS else failures
            delay = _SUPERVISOR_RESTART_BACKOFF.delay(failures, 0.0)
            failures += 1
            say(f"the {self.name} {ending}; restarting in {delay:g} s")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopping.wait()

    async def _run_once(self) -> str:
        """Start the process and wait until it exits; returns a description of how it ended."""
        process_name = uuid4()
        try:
            self._process = process = await self._spawn(process_name)
        except OSError as error:
            return f"could not start ({error})"
        if self._stopping.is_set():
            self._signal(signal.SIGTERM)
        code = await process.wait()
        self._process = None
        self._on_reaped(process_name)
        if code == EXIT_MISCONFIGURED:
            self.gave_up.set()
        return f"exited ({_why(code)})"

    async def _spawn(self, process_name: UUID) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "coatcheck.cli",
            *self._arguments,
            *("--supervised", str(process_name)),
            env=dict(self._environment()),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number is signal.SIGKILL:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)


def _why(code: int) -> str:
    return f"code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


_LOOK_SECONDS: Final = 0.5
_POSTGRES_RESTART_BACKOFF: Final = Backoff(base_seconds=1.0, cap_seconds=30.0, jitter=0.0)
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
                delay = _POSTGRES_RESTART_BACKOFF.delay(failures, 0.0)
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
