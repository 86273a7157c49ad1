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
from typing import Final
from uuid import UUID, uuid4

from coatcheck.cli.console import say
from coatcheck.cli.errors import EXIT_MISCONFIGURED
from coatcheck.domain.retry import Backoff

_RESTART_BACKOFF: Final = Backoff(base_seconds=0.5, cap_seconds=30.0, jitter=0.0)
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
            delay = _RESTART_BACKOFF.delay(failures, 0.0)
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
