"""Processes on one database, started, stopped, paused and killed by a test, and what they did."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from coatcheck import Ticket
from coatcheck.settings.declaration import PREFIX
from tests.child_process import ROOT, ChildProcess
from tests.e2e.faults import strikes
from tests.e2e.faults.process import NAME_VARIABLE
from tests.e2e.faults.victims import VICTIM
from tests.ports import free_port
from tests.waiting import eventually_async
from tests.worker.workshop import Workshop

UPKEEP_VARIABLE = "LAB_UPKEEP_IN"
"""``server`` or ``worker``: upkeep is done by that command, as in a deployment, not alone."""
ENDS_BY_ITSELF = frozenset(
    {"submit", "hand_in", "cancel", "look", "create_batch", "cancel_batch", "rerun_batch"}
)
"""Roles that do one thing."""


def _module(arguments: list[str]) -> list[str]:
    """The program of a role: that of these tests, or the real command that does upkeep."""
    match arguments, os.environ.get(UPKEEP_VARIABLE, ""):
        case ["upkeep"], "server":
            return ["coatcheck.cli", "serve", "--port", str(free_port())]
        case ["upkeep"], "worker":
            return ["coatcheck.cli", "worker"]
        case _:
            return ["tests.e2e.faults.process", *arguments]


class Laboratory(Workshop):
    """A workshop whose workers are processes. They are all ended when the test is."""

    def __init__(self, dsn: str, folder: Path) -> None:
        super().__init__(dsn, folder)
        self._processes: list[ChildProcess] = []
        self._struck: ChildProcess | None = None
        self._executions = folder / "executions"

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None and self._struck is not None:
                by_itself = self._struck.role in ENDS_BY_ITSELF
                await strikes.go_on(self._struck, self.sql, ends_by_itself=by_itself)
        finally:
            for process in self._processes:
                process.end()
        for process in self._processes:
            print(f"--- log of process {process.pid}\n{process.log}")  # shown if the test failed
        await super().__aexit__(kind, error, trace)

    # Processes

    def start(
        self, *arguments: str, crash_at: str = "", name: str = "", **settings: str
    ) -> ChildProcess:
        """Start a process in a role. ``settings`` are variables without their prefix."""
        process = ChildProcess(
            self.folder,
            len(self._processes),
            arguments[0],
            _module(list(arguments)),
            self._environment(crash_at and VICTIM.crash_at(crash_at), name, settings),
            crash_at,
        )
        self._processes.append(process)
        return process

    async def strike(self, process: ChildProcess) -> None:
        """Have the victim struck as the process comes to its crash point: see victims.py."""
        self._struck = await strikes.strike(process, self.sql, self.reconnect)

    async def forget_the_struck(self) -> None:
        """The dead will never be heard of again: let their leases end now, by the database's clock.
        One who stands still is taken for dead. One whose database died lives, and goes on."""
        if VICTIM.is_exact:
            await self.sql.execute("UPDATE workers SET last_seen_at = now() - interval '1 hour'")

    async def start_working(self, **options: str) -> ChildProcess:
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
