"""The `coatcheck` command as a user runs it: a process of its own, in a folder of its own."""

from __future__ import annotations

import asyncio
import itertools
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import httpx2
import psutil
import pytest

from coatcheck.cli.up import DEMO_SERVICE, bootstrap
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.migrate import migrate
from coatcheck.tls import trusted_authorities
from tests.conftest import copy_first_boot, make_open_folder
from tests.crash_points import VICTIM, Victim, servers
from tests.databases import Databases
from tests.failure_report import show_on_failure
from tests.forked_process import ForkedProcess, can_fork, run_forked
from tests.ports import free_port
from tests.waiting import LIMIT_SECONDS, eventually

SOURCE = Path(__file__).resolve().parents[2] / "src"
PEPPER = "a pepper that is only ever used in tests"
_numbers = itertools.count(1)
COMMAND = [sys.executable, "-m", "coatcheck.cli"]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment, without its own Coatcheck settings, with these variables."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("COATCHECK_")}
    return inherited | {"PYTHONPATH": str(SOURCE), "COLUMNS": "200"} | variables


def coatcheck(
    *arguments: str, cwd: Path, given: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; ``given`` is its standard input."""
    return run_forked(
        "coatcheck.cli", *arguments, cwd=cwd, env=environment(**variables), given=given
    )


def start_coatcheck(*arguments: str, cwd: Path, output: IO[bytes], **options: Any) -> ForkedProcess:
    """Start a command that runs until it is told to end; ``output`` has all that it says."""
    return ForkedProcess(
        "coatcheck.cli", arguments, cwd=cwd, stdout=output, stderr=output, **options
    )


class Up:
    """A running `coatcheck up`, by default on a folder whose PostgreSQL was booted before."""

    def __init__(
        self,
        root: Path,
        *services: str,
        data: str = "data",
        port: int | None = None,
        from_nothing: bool = False,
        on_terminal: bool = False,
        python: str = sys.executable,
        **variables: str,
    ):
        self.data = root / data
        if not from_nothing and not self.data.exists():
            copy_first_boot(self.data)
        self.port = port or free_port()
        self.log = root / f"up-{next(_numbers)}.log"
        show_on_failure(self.log)
        arguments = ["up", "--data", str(self.data), "--port", str(self.port), *services]
        with self._output(on_terminal) as output:
            self.process: ForkedProcess | subprocess.Popen[bytes]
            own = environment(**variables)
            if python == sys.executable and can_fork(own):
                self.process = start_coatcheck(
                    *arguments,
                    cwd=root,
                    env=own,
                    output=output,
                    start_new_session=True,  # a terminal's foreground group, for Ctrl-C
                )
            else:
                self.process = subprocess.Popen(
                    [python, "-m", "coatcheck.cli", *arguments],
                    cwd=root,
                    env=own,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )

    def said(self) -> str:
        return self.log.read_text()

    def _output(self, on_terminal: bool) -> BinaryIO:
        """The log; or a terminal, all of whose words get into the log."""
        if not on_terminal:
            return self.log.open("ab")
        ours, theirs = pty.openpty()
        self.log.touch()
        threading.Thread(target=self._note, args=(ours,), daemon=True).start()
        return os.fdopen(theirs, "wb")

    def _note(self, terminal: int) -> None:
        with self.log.open("ab", buffering=0) as log, suppress(OSError):  # nobody writes any more
            while words := os.read(terminal, 65_536):
                log.write(words)
        os.close(terminal)

    def wait_until_said(self, text: str) -> None:
        def seen() -> bool:
            if text in self.said():
                return True
            assert self.process.poll() is None, f"it ended:\n{self.said()}"
            return False

        eventually(seen, f"{text!r} is said:\n{self.said()}")

    def wait_until_ready(self) -> None:
        self.wait_until_said("Ctrl-C stops everything.")

    def ready_status(self) -> int | None:
        """What /readyz answers, or None if nothing does."""
        with suppress(httpx2.HTTPError):
            url = f"http://127.0.0.1:{self.port}/readyz"
            authorities = trusted_authorities(trust_env=False)
            return httpx2.get(url, timeout=10, verify=authorities, trust_env=False).status_code
        return None

    def first_command(self) -> list[str]:
        """The `coatcheck submit ...` that it tells a newcomer to try."""
        found = re.search(r"^  (.* submit .*)$", self.said(), re.MULTILINE)
        assert found is not None, self.said()
        return shlex.split(found[1])

    def child(self, name: str) -> psutil.Process | None:
        """The process that runs `coatcheck NAME` for it."""
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.process.pid).children():
                if name in process.cmdline()[:4]:
                    return process
        return None

    def postgres(self) -> psutil.Process:
        pid_file = self.data / "pg" / "postmaster.pid"
        return psutil.Process(int(pid_file.read_text().splitlines()[0]))

    def everything(self) -> list[psutil.Process]:
        """Every process of it, PostgreSQL's included."""
        postgres = self.postgres()
        supervisor = psutil.Process(self.process.pid)
        return [
            *supervisor.children(recursive=True),
            postgres,
            *postgres.children(recursive=True),
        ]

    def press_ctrl_c(self) -> None:
        """As a terminal does: SIGINT to the whole foreground group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def stop(self) -> int:
        self.press_ctrl_c()
        return self.process.wait(LIMIT_SECONDS)


@contextmanager
def running_up(folder: Path, *services: str, **variables: str) -> Iterator[Up]:
    """One that is ready, for several tests to ask."""
    up = Up(folder, *services, **variables)  # type: ignore[arg-type]
    try:
        up.wait_until_ready()
        yield up
    finally:
        if up.process.poll() is None:
            up.stop()


@pytest.fixture(scope="module")
def shared_up() -> Iterator[Up]:
    """One for all tests of a module that leave it as it is."""
    folder = make_open_folder()
    with running_up(folder) as up:
        yield up
    shutil.rmtree(folder)


@dataclass(frozen=True)
class Served:
    """A server and a worker as processes, with a key in ``data`` as `coatcheck up` leaves it there.

    For commands and guides that any server could answer: it starts ten times as fast as `up`.
    """

    folder: Path
    data: Path
    port: int


@contextmanager
def served(databases: Databases, *services: str, files: Mapping[str, str] = {}) -> Iterator[Served]:
    """One that is ready, on a database of its own; ``files`` are in its folder, by name."""
    folder = make_open_folder()
    for name, text in files.items():
        (folder / name).write_text(text)
    site = Served(folder, folder / "data", free_port())
    site.data.mkdir()
    with databases.shared() as dsn, ExitStack() as processes:
        asyncio.run(bootstrap(dsn, site.data, pepper=PEPPER, preset=""))
        variables = environment(
            COATCHECK_DATABASE_URL=dsn,
            COATCHECK_BLOB_URL=(site.data / "blobs").as_uri(),
            COATCHECK_TEMP_DIR=str(folder / "temp"),
            COATCHECK_KEY_PEPPER=PEPPER,
            COATCHECK_WEBHOOK_LOOPBACK="on",
            COATCHECK_DRAIN_SECONDS="0.1",
        )
        for arguments, ready in (
            (("serve", "--port", str(site.port)), "serving on"),
            (("worker", *services), "worker ready"),
        ):
            processes.enter_context(_serving(folder, arguments, variables, ready))
        yield site
    shutil.rmtree(folder)


@contextmanager
def _serving(
    folder: Path, arguments: tuple[str, ...], variables: Mapping[str, str], ready: str
) -> Iterator[None]:
    """A command, from when it says that it is ready; at the end it has to stop well."""
    log = folder / f"{arguments[0]}.log"
    show_on_failure(log)
    with log.open("wb") as output:
        process = start_coatcheck(*arguments, cwd=folder, env=variables, output=output)
    try:
        eventually(
            lambda: process.poll() is not None or ready in log.read_text(), f"{ready!r} is said"
        )
        assert process.poll() is None, log.read_text()
        yield
        process.terminate()
        assert process.wait(LIMIT_SECONDS) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def shared_server(databases: Databases) -> Iterator[Served]:
    """One with the demo, for all tests of a module that leave it as it is."""
    with served(databases, DEMO_SERVICE) as site:
        yield site


@pytest.fixture
def start_up(data_root: Path) -> Iterator[Callable[..., Up]]:
    """Starts `coatcheck up`; whatever a test leaves running is stopped after it."""
    started: list[Up] = []

    def start(*services: str, **options: object) -> Up:
        up = Up(data_root, *services, **options)  # type: ignore[arg-type]
        started.append(up)
        return up

    yield start
    for up in started:
        if up.process.poll() is None:
            up.stop()
    for data in {up.data for up in started if (up.data / "pg" / "postmaster.pid").exists()}:
        # A test that killed its supervisor and failed: PostgreSQL lives on.
        left = next(up for up in started if up.data == data)
        with suppress(psutil.NoSuchProcess):
            left.postgres().send_signal(signal.SIGQUIT)


if VICTIM is Victim.POSTGRESQL:

    @pytest.fixture
    async def dsn(pg_server: EmbeddedPostgres) -> AsyncIterator[str]:
        """A database on a server of the test's own, which is struck: see tests/crash_points.py."""
        await migrate(pg_server.dsn)
        servers.append(pg_server)
        yield pg_server.dsn
        servers.clear()
