"""A process that a test starts, stops, pauses and kills, and hears."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.failure_report import show_on_failure
from tests.forked_process import ROOT, ForkedProcess, can_fork
from tests.waiting import eventually_async


class ChildProcess:
    """One process, forked if its environment allows it: ``command`` is a module and its arguments.

    What it says on stdout and logs on stderr goes to files.
    """

    def __init__(
        self,
        name: Path,
        role: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        crash_at: str = "",
        is_one_shot: bool = False,
        cwd: Path | None = None,
    ) -> None:
        self._said = name.with_suffix(".out")
        self._logged = name.with_suffix(".log")
        show_on_failure(self._logged)
        self._paused = False
        self._told_to_end = False
        self.role = role
        self.point = crash_at.partition(":")[0]
        self.is_one_shot = is_one_shot
        """Whether it ends by itself, having done one thing."""
        with self._said.open("wb") as said, self._logged.open("wb") as logged:
            self._popen: ForkedProcess | subprocess.Popen[bytes]
            if can_fork(environment):
                module, *arguments = command
                self._popen = ForkedProcess(
                    module, arguments, cwd=cwd or ROOT, env=environment, stdout=said, stderr=logged
                )
            else:
                self._popen = subprocess.Popen(
                    [sys.executable, "-m", *command],
                    cwd=cwd or ROOT,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=logged,
                )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def log(self) -> str:
        return self._logged.read_text()

    def said(self, event: str) -> list[dict[str, Any]]:
        """What it said of this event so far."""
        whole_lines = self._said.read_text().rpartition("\n")[0].splitlines()
        return [said for said in map(json.loads, whole_lines) if said["event"] == event]

    async def says(self, event: str) -> dict[str, Any]:
        """Its word of this event, as soon as it comes. Fails if the process ends without one."""

        async def look() -> list[dict[str, Any]]:
            ended = self._popen.poll() is not None
            said = self.said(event)
            if ended and not said:
                raise AssertionError(
                    f"ended with {self._popen.returncode} and never said {event!r}:\n{self.log}"
                )
            return said

        found: list[dict[str, Any]] = await eventually_async(look, f"a process says {event!r}")
        return found[0]

    async def exit(self) -> int:
        """Its exit status, once it has ended; negative for the signal that ended it."""

        async def look() -> list[int]:
            status = self._popen.poll()
            return [] if status is None else [status]

        (status,) = await eventually_async(look, f"the process ends; its log:\n{self.log}")
        return int(status)

    async def stands_still(self) -> None:
        """Wait until it has stopped itself at its crash point."""

        async def look() -> bool:
            if self._popen.poll() is not None:
                raise AssertionError(f"it ended with {self._popen.returncode}:\n{self.log}")
            return psutil.Process(self.pid).status() == psutil.STATUS_STOPPED

        await eventually_async(look, "the process stops at its point")
        self._paused = True

    def interrupt(self) -> None:
        """SIGTERM: it is to drain and end. A second one would not let it drain."""
        if not self._told_to_end:
            self._told_to_end = True
            self._popen.terminate()

    async def terminate(self) -> int:
        """SIGTERM, then its exit status."""
        self.interrupt()
        return await self.exit()

    async def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._popen.kill()
        await self.exit()

    def pause(self) -> None:
        """SIGSTOP: it does nothing until it is resumed, and does not know."""
        self._popen.send_signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        self._popen.send_signal(signal.SIGCONT)
        self._paused = False

    def listening(self) -> list[Any]:
        """The addresses on which it accepts connections."""
        connections = psutil.Process(self.pid).net_connections("inet")
        return [each.laddr for each in connections if each.status == psutil.CONN_LISTEN]

    def end(self) -> None:
        """However it fares, it is gone after this."""
        if self._popen.poll() is None:
            if self._paused:
                self.resume()
            self._popen.kill()
            self._popen.wait()
