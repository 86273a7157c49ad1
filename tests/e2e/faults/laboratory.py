"""Processes on one database, started, stopped, paused and killed by a test, and what they did."""

from __future__ import annotations

import asyncio
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
from tests.e2e.faults.victims import VICTIM, Victim, servers
from tests.ports import free_port
from tests.waiting import eventually_async
from tests.worker.workshop import Workshop

STRUCK_VARIABLE = "LAB_STRUCK"
"""A file that every strike is noted in, one JSON object a line."""
UPKEEP_VARIABLE = "LAB_UPKEEP_IN"
"""``server`` or ``worker``: upkeep is done by that command, as in a deployment, not alone."""
ROOT = Path(__file__).resolve().parents[3]
KILLED = 137
ENDS_BY_ITSELF = frozenset(
    {"submit", "hand_in", "cancel", "look", "create_batch", "cancel_batch", "rerun_batch"}
)
"""Roles that do one thing."""
_ENDED = """
SELECT id, state, result, failures, crashes, interruptions, finished_at FROM jobs
WHERE state IN ('completed', 'failed', 'cancelled') ORDER BY id
"""


def _module(arguments: list[str]) -> list[str]:
    """The program of a role: that of these tests, or the real command that does upkeep."""
    match arguments, os.environ.get(UPKEEP_VARIABLE, ""):
        case ["upkeep"], "server":
            return ["coatcheck.cli", "serve", "--port", str(free_port())]
        case ["upkeep"], "worker":
            return ["coatcheck.cli", "worker"]
        case _:
            return ["tests.e2e.faults.process", *arguments]


def _note_strike(process: LabProcess) -> None:
    if STRUCK_VARIABLE in os.environ:
        path, _, name = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0].partition("::")
        test = f"{path.removesuffix('.py').replace('/', '.')}::{name}"
        entry = {"point": process.point, "role": process.role, "test": test}
        with Path(os.environ[STRUCK_VARIABLE]).open("a") as journal:
            journal.write(json.dumps(entry) + "\n")


class LabProcess:
    """One process. What it says on stdout and logs on stderr goes to files."""

    def __init__(
        self,
        folder: Path,
        number: int,
        arguments: list[str],
        environment: Mapping[str, str],
        crash_at: str = "",
    ) -> None:
        self._said = folder / f"process-{number}.out"
        self._logged = folder / f"process-{number}.log"
        self._paused = False
        self._told_to_end = False
        self.role = arguments[0]
        self.point = crash_at.partition(":")[0]
        with self._said.open("wb") as said, self._logged.open("wb") as logged:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", *_module(arguments)],
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


class Laboratory(Workshop):
    """A workshop whose workers are processes. They are all ended when the test is."""

    def __init__(self, dsn: str, folder: Path) -> None:
        super().__init__(dsn, folder)
        self._processes: list[LabProcess] = []
        self._struck: LabProcess | None = None
        self._executions = folder / "executions"

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None and self._struck is not None:
                await self._goes_on(self._struck)
        finally:
            for process in self._processes:
                process.end()
        for process in self._processes:
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
            self._environment(crash_at and VICTIM.crash_at(crash_at), name, settings),
            crash_at,
        )
        self._processes.append(process)
        return process

    async def strike(self, process: LabProcess) -> None:
        """Have the victim struck as the process comes to its crash point: see victims.py."""
        if not VICTIM.stops:
            assert await process.exit() == KILLED, process.log
            _note_strike(process)
            return
        await process.stands_still()
        _note_strike(process)
        self._struck = process
        if VICTIM is Victim.PAUSE:
            # As after 30 s, when nobody may be idle in a transaction any longer.
            await self.sql.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE state = 'idle in transaction' AND datname = current_database()"
            )
            return
        (server,) = servers
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await self.reconnect()
        process.resume()

    async def forget_the_struck(self) -> None:
        """The dead will never be heard of again: let their leases end now, by the database's clock.
        One who stands still is taken for dead. One whose database died lives, and goes on."""
        if VICTIM.is_exact:
            await self.sql.execute("UPDATE workers SET last_seen_at = now() - interval '1 hour'")

    async def _goes_on(self, process: LabProcess) -> None:
        """Let who was stopped go on and end in good order: nothing that has ended changes."""
        before = await self.sql.fetch(_ENDED)
        process.resume()
        by_itself = process.role in ENDS_BY_ITSELF
        status = await process.exit() if by_itself else await process.terminate()
        # Who hands something in may be told that it is not known what became of it.
        assert status == 0 or (by_itself and status == 1), process.log
        assert "Traceback" not in process.log or by_itself, process.log
        assert await self.sql.fetch(_ENDED) == before

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
            **({"KEY_PEPPER": "p" * 32} if os.environ.get(UPKEEP_VARIABLE) == "server" else {}),
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
