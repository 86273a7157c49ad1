"""The processes of a deployment: restarted, killed, paused and drained; and PostgreSQL.

A supervisor restarts each process a moment after it ended, however it ended. A fault applies to the
current process: a pause that ends after its process was killed must not touch its successor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil

from chaos.history import History
from chaos.proxy import Proxy
from coatcheck.db.embedded import EmbeddedPostgres

ROOT: Final = Path(__file__).resolve().parents[1]
RESTART_SECONDS: Final = (0.2, 2.0)
"""The random delay between a process's end and its restart."""
TERMINATION_SECONDS_MAX: Final = 20.0
PAUSE_SECONDS_MAX: Final = 15.0
_LOOK_SECONDS: Final = 0.05


class Member:
    """A server or a worker. ``command`` is what follows ``coatcheck``."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        logs: Path,
        history: History,
        seed: int,
        *,
        database_proxy: Proxy,
        client_proxy: Proxy | None = None,
    ) -> None:
        self.name = name
        self.database_proxy = database_proxy
        self.client_proxy = client_proxy
        self.log_paths: list[Path] = []
        self._command = command
        self._environment = environment
        self._logs = logs
        self._history = history
        self._rng = random.Random(f"{seed} restarts of {name}")
        self._process: asyncio.subprocess.Process | None = None
        self._paused: int | None = None
        self._struck: dict[int, str] = {}
        """The last fault signal of each process."""
        self._may_run = asyncio.Event()
        self._closing = False
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The id of the current process; 0 if there is none."""
        return 0 if self._process is None else self._process.pid

    @property
    def is_paused(self) -> bool:
        return self._paused is not None and self._paused == self.pid

    async def start(self) -> None:
        """Start it, and restart it whenever it ends. Returns when the process runs."""
        self._may_run.set()
        if self._supervisor is None:
            self._supervisor = asyncio.create_task(self._supervise(), name=f"supervise {self.name}")
        while self.pid == 0:
            if self._supervisor.done():
                self._supervisor.result()
            await asyncio.sleep(_LOOK_SECONDS)

    async def kill(self, *, stay_down: bool = False) -> int:
        """kill -9 of this process alone: its children must end by themselves.

        Returns when it has ended: the id of the killed process, or 0 if there was none.
        """
        if stay_down:
            self._may_run.clear()
        return await self._strike(signal.SIGKILL)

    async def terminate(self, *, stay_down: bool = False) -> int:
        """SIGTERM, and SIGKILL if it does not end long after its grace. Returns like ``kill``."""
        if stay_down:
            self._may_run.clear()
        return await self._strike(signal.SIGTERM)

    def pause(self) -> int:
        """SIGSTOP. Returns the process id, or 0 if there is none or it is already paused."""
        pid = self.pid
        if pid == 0 or self.is_paused:
            return 0
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:  # it has just ended, and its supervisor has not noticed yet
            return 0
        self._paused = pid
        return pid

    def resume(self, pid: int | None = None) -> bool:
        """SIGCONT to ``pid``, if that is the current process. Returns whether it was paused."""
        if not self.is_paused or pid not in (None, self.pid):
            return False
        self._paused = None
        try:
            os.kill(self.pid, signal.SIGCONT)
        except ProcessLookupError:
            return False
        return True

    async def close(self) -> None:
        """Stop it permanently, with its children."""
        self._closing = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._supervisor is not None:
            self._may_run.set()
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        if self._process is not None:
            await self._process.wait()
            self._process = None

    async def _strike(self, number: signal.Signals) -> int:
        process = self._process
        if process is None or process.returncode is not None:
            return 0
        self._struck[process.pid] = number.name
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            async with asyncio.timeout(TERMINATION_SECONDS_MAX + self._seconds_paused_at_most()):
                await process.wait()
        except TimeoutError:
            self._history.note("stuck", name=self.name, pid=process.pid, signal=number.name)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        return process.pid

    def _seconds_paused_at_most(self) -> float:
        """A stopped process handles SIGTERM only after SIGCONT."""
        return PAUSE_SECONDS_MAX if self.is_paused else 0.0

    async def _supervise(self) -> None:
        while not self._closing:
            await self._may_run.wait()
            process, log = await self._spawn()
            self._process = process
            self._history.note(
                "process", name=self.name, pid=process.pid, phase="begin", log=log.name
            )
            code = await process.wait()
            self._process = None
            expected = process.pid in self._struck
            self._history.note(
                "process",
                name=self.name,
                pid=process.pid,
                phase="end",
                code=code,
                expected=expected,
                struck=self._struck.get(process.pid),
            )
            await asyncio.sleep(self._rng.uniform(*RESTART_SECONDS))

    async def _spawn(self) -> tuple[asyncio.subprocess.Process, Path]:
        path = self._logs / f"{self.name}-{len(self.log_paths) + 1}.log"
        self.log_paths.append(path)
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "coatcheck.cli",
                *self._command,
                cwd=ROOT,
                env=dict(self._environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return process, path


class PostgresMember:
    """The embedded server. Its blocking calls run in threads."""

    name = "postgres"

    def __init__(self, folder: Path, history: History, **settings: str | int) -> None:
        self._server = EmbeddedPostgres(folder, settings=settings)
        self._history = history
        self._turn = asyncio.Lock()
        self._paused: list[psutil.Process] = []

    @property
    def dsn(self) -> str:
        """Without a proxy."""
        return self._server.dsn

    @property
    def pid(self) -> int:
        return self._server.pid or 0

    @property
    def log_path(self) -> Path:
        return self._server.log_path

    @property
    def is_running(self) -> bool:
        return self._server.is_running()

    async def start(self) -> None:
        """Returns when it accepts connections; after a kill, when it has recovered."""
        async with self._turn:
            if self._server.is_running():
                return
            await asyncio.to_thread(self._server.start)
            self._history.note("process", name=self.name, pid=self.pid, phase="begin")

    async def kill(self) -> int:
        """kill -9 of all its processes. Returns the postmaster's id, or 0 if it was not ready."""
        if self._turn.locked():
            return 0
        async with self._turn:
            pid = self.pid
            if pid == 0:
                return 0
            self.resume()
            await asyncio.to_thread(self._server.kill)
            self._history.note(
                "process", name=self.name, pid=pid, phase="end", code=-9, expected=True
            )
            return pid

    def pause(self) -> int:
        """SIGSTOP to all its processes: the database stalls. Returns the postmaster's id, or 0."""
        pid = self.pid
        if pid == 0 or self._paused:
            return 0
        postmaster = psutil.Process(pid)
        self._each([postmaster], psutil.Process.suspend)  # it cannot start another one meanwhile
        self._paused = [postmaster, *postmaster.children(recursive=True)]
        self._each(self._paused, psutil.Process.suspend)
        return pid

    def resume(self) -> bool:
        paused, self._paused = self._paused, []
        self._each(reversed(paused), psutil.Process.resume)
        return bool(paused)

    async def close(self) -> None:
        self.resume()
        async with self._turn:
            await asyncio.to_thread(self._server.stop, "immediate")

    @staticmethod
    def _each(
        processes: Iterable[psutil.Process],
        act: Callable[[psutil.Process], None],
    ) -> None:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                act(process)
