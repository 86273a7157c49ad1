"""Processes on one database, started, stopped, paused and killed by a test, and what they did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from coatcheck import Ticket
from coatcheck.settings.declaration import PREFIX
from tests.e2e.faults.process import NAME_VARIABLE
from tests.waiting import eventually_async
from tests.worker.workshop import Workshop

ROOT = Path(__file__).resolve().parents[3]


class LabProcess:
    """One process. What it says on stdout and logs on stderr goes to files."""

    def __init__(
        self, folder: Path, number: int, arguments: list[str], environment: Mapping[str, str]
    ) -> None:
        self._said = folder / f"process-{number}.out"
        self._logged = folder / f"process-{number}.log"
        self._paused = False
        with self._said.open("wb") as said, self._logged.open("wb") as logged:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.faults.process", *arguments],
                cwd=ROOT,
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

    def interrupt(self) -> None:
        """SIGTERM: it is to drain and end."""
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


class Laboratory(Workshop):
    """A workshop whose workers are processes. They are all ended when the test is."""

    def __init__(self, dsn: str, folder: Path) -> None:
        super().__init__(dsn, folder)
        self._processes: list[LabProcess] = []
        self._executions = folder / "executions"

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.end()
            print(f"--- log of process {process.pid}\n{process.log}")  # shown if the test failed
        await super().__aexit__(kind, error, trace)

    # Processes

    def start(
        self, *arguments: str, crash_at: str = "", name: str = "", **settings: str
    ) -> LabProcess:
        """Start a process in a role. ``settings`` are variables without their prefix."""
        process = LabProcess(
            self.folder,
            len(self._processes),
            list(arguments),
            self._environment(crash_at, name, settings),
        )
        self._processes.append(process)
        return process

    async def start_working(self, **options: str) -> LabProcess:
        """A worker process that claims."""
        process = self.start("worker", **options)
        await process.says("ready")
        return process

    def _environment(self, crash_at: str, name: str, settings: Mapping[str, str]) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)}
        ours = {
            "DATABASE_URL": self.dsn,
            "BLOB_URL": (self.folder / "blobs").as_uri(),
            "TEMP_DIR": str(self.folder / "temp"),
            "DRAIN_SECONDS": "0.1",
            "LOG_FORMAT": "json",
            **{key.upper(): value for key, value in settings.items() if key != "pythonpath"},
        }
        paths = [settings.get("pythonpath", ""), str(ROOT / "src"), str(ROOT)]
        return (
            inherited
            | {PREFIX + key: value for key, value in ours.items()}
            | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), NAME_VARIABLE: name}
            | ({"COATCHECK_CRASH_AT": crash_at} if crash_at else {})
        )

    # Jobs and their executions

    def payload(self, *, gate: str = "") -> dict[str, str]:
        """What the handlers in services.py want: where to leave a line, and what to wait for."""
        log = {"log": str(self._executions)}
        return log | {"gate": str(self.folder / gate)} if gate else log

    def open_gate(self, gate: str) -> None:
        (self.folder / gate).touch()

    def executions(self) -> list[tuple[str, int, int]]:
        """(job id, attempt, process id) of every execution that was begun."""
        if not self._executions.exists():
            return []
        lines = [line.split() for line in self._executions.read_text().splitlines()]
        return [(job_id, int(attempt), int(pid)) for job_id, attempt, pid in lines]

    def executions_of(self, ticket: Ticket) -> int:
        return Counter(job_id for job_id, _, _ in self.executions())[ticket.id]

    async def until_executed(self, ticket: Ticket, times: int = 1) -> int:
        """Wait until a job was begun so often. The process of that execution."""

        async def look() -> list[int]:
            pids = [pid for job_id, _, pid in self.executions() if job_id == ticket.id]
            return pids[times - 1 : times]

        (pid,) = await eventually_async(look, f"execution {times} of the job has begun")
        return int(pid)
