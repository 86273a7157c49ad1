"""The life cycle of an embedded server: start or adopt, wait until it is ready, stop.

The process that starts it owns the data folder until it stops. A killed owner loses the folder but
not the server, which goes on in its own session; the next owner finds and adopts it. A server that
was killed itself recovers at its next start, however long that takes.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import signal
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import psutil

from coatcheck.db.embedded.cluster import (
    Programs,
    Setting,
    check_version,
    create_cluster,
    runnable_bin,
    settings_file,
)
from coatcheck.db.embedded.folder import (
    PORT,
    SYSTEM_DATA,
    Account,
    EmbeddedPostgresError,
    Layout,
    Ownership,
    check_usable,
    server_account,
)

EXIT_SECONDS_MAX = 30.0
EXIT_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class PidFile:
    """The contents of a server's pid file; the server may no longer run."""

    pid: int
    socket_dir: str
    status: str

    @classmethod
    def read(cls, cluster: Path) -> PidFile | None:
        """The cluster's pid file, or None if there is none (after a clean stop)."""
        try:
            lines = (cluster / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        # The server writes the first lines at once and the last ones during its start.
        fields = [line.strip() for line in lines] + [""] * 8
        if not fields[0].isdigit():
            return cls(0, "", "")
        return cls(int(fields[0]), fields[4], fields[7])


def find_server(cluster: Path, account: Account) -> psutil.Process | None:
    """The live server of `cluster`, or None.

    Raises EmbeddedPostgresError if the pid file names a live server of another folder: then this
    folder is a copy of one in use, or was moved under its server, and a start would endanger both.
    """
    left = PidFile.read(cluster)
    if left is None or left.pid == 0:
        return None
    process = _postgres(left.pid, account)
    if process is None:
        return None
    served = _served_folder(process)
    if served is not None and served.resolve() != cluster:
        raise EmbeddedPostgresError(
            f"{cluster / 'postmaster.pid'} names process {left.pid}, which serves {served}",
            "If this folder is a copy of that one, stop the server there and copy it again. If "
            f"it was moved, stop the server first: kill -INT {left.pid}",
        )
    return process


def stranger_pid(cluster: Path) -> int | None:
    """The id in the pid file if a live process has it; only valid if `find_server` found none."""
    left = PidFile.read(cluster)
    return left.pid if left is not None and left.pid and psutil.pid_exists(left.pid) else None


def cluster_name(cluster: Path) -> str:
    """A name in the titles of the server's processes, by which orphans are found."""
    return f"coatcheck-{hashlib.sha256(os.fsencode(cluster)).hexdigest()[:12]}"


def kill_with_children(postmaster: psutil.Process) -> None:
    """SIGKILL a server and all its processes, like a power cut."""
    with contextlib.suppress(psutil.NoSuchProcess):
        postmaster.suspend()  # so that it starts no further process
        end_processes([postmaster, *postmaster.children(recursive=True)])


def kill_orphans(cluster: Path, account: Account) -> None:
    """End processes that outlived their killed server: none may touch the cluster's files."""
    title = f"postgres: {cluster_name(cluster)}:"
    end_processes(
        [
            process
            for process in psutil.process_iter()
            if _owned_by(process, account)
            and (title in " ".join(_command_line(process)) or _served_folder(process) == cluster)
        ]
    )


def end_processes(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    # Not psutil.wait_procs: in a container whose first process reaps no children, an ended process
    # stays a zombie for good, and a zombie holds nothing.
    deadline = time.monotonic() + EXIT_SECONDS_MAX
    while stuck := [process.pid for process in processes if is_live(process)]:
        if time.monotonic() > deadline:
            raise EmbeddedPostgresError(f"processes {stuck} do not end after SIGKILL")
        time.sleep(EXIT_POLL_SECONDS)


def _postgres(pid: int, account: Account) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None
    command = _command_line(process)
    is_postgres = bool(command) and Path(command[0]).name == "postgres"
    return process if is_postgres and is_live(process) and _owned_by(process, account) else None


def _served_folder(process: psutil.Process) -> Path | None:
    command = _command_line(process)
    with contextlib.suppress(ValueError, IndexError):
        return Path(command[command.index("-D") + 1])
    return None


def is_live(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _owned_by(process: psutil.Process, account: Account) -> bool:
    try:
        return process.uids().effective == account.uid
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []


SUPERUSER = "coatcheck"
DATABASE = "coatcheck"
_CREATE_DATABASE_IF_MISSING = """\
SELECT 'CREATE DATABASE coatcheck'
 WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'coatcheck') \\gexec
"""

READY_POLL_SECONDS = 0.02
PROGRESS_SECONDS = 1.0
# A fast stop writes a checkpoint. A longer one is cut short: committed data is in the write-ahead
# log, and the next start recovers it.
STOP_SECONDS_MAX = 60.0
LOG_BYTES_MAX = 16 * 1024 * 1024
LOG_TAIL_BYTES = 4096

StopMode = Literal["smart", "fast", "immediate"]
_STOP_SIGNALS: Mapping[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}


class Phase(enum.StrEnum):
    """The phase of a start; the text is fit to print."""

    PREPARING = "preparing PostgreSQL"
    CREATING = "creating the database files"
    STARTING = "starting PostgreSQL"
    RECOVERING = "PostgreSQL is recovering after an unclean stop"


OnProgress = Callable[[Phase, float], None]
"""Called with the phase when it changes and every second, and the seconds since `start`."""


class EmbeddedPostgres:
    """A PostgreSQL 18 server on one data folder, reached over a private Unix socket.

    `settings` override our PostgreSQL settings. Use it as a context manager, or call `start` and
    `stop`. One process at a time can own a data folder; a second one gets an EmbeddedPostgresError
    from `start`.
    """

    def __init__(self, data_dir: Path, *, settings: Mapping[str, Setting] | None = None) -> None:
        self._layout = Layout.of(data_dir)
        self._settings = dict(settings or {})
        self._ownership = Ownership(self._layout.lock)
        self._child: subprocess.Popen[bytes] | None = None
        self._process: psutil.Process | None = None
        self._socket_dir: Path | None = None

    @property
    def data_dir(self) -> Path:
        return self._layout.data

    @property
    def log_path(self) -> Path:
        return self._layout.log

    @property
    def dsn(self) -> str:
        """The URL of the `coatcheck` database, for asyncpg and everything built on libpq."""
        return self.dsn_of(DATABASE)

    def dsn_of(self, database: str) -> str:
        """The URL of another database on this server."""
        query = urllib.parse.urlencode({"host": str(self._where_it_listens()), "port": PORT})
        return f"postgresql://{SUPERUSER}@/{urllib.parse.quote(database)}?{query}"

    def _where_it_listens(self) -> Path:
        """Our own server's socket folder, else that of the pid file, else the default.

        Another process's environment may have led it to another short folder than ours would.
        """
        if self._socket_dir is not None:
            return self._socket_dir
        with contextlib.suppress(PermissionError):
            said = PidFile.read(self._layout.cluster)
            if said is not None and said.socket_dir:
                return Path(said.socket_dir)
        return self._layout.socket_dir

    @property
    def pid(self) -> int | None:
        """The server's process id, or None if it is not running."""
        return self._process.pid if self._process is not None and self.is_running() else None

    def is_running(self) -> bool:
        if self._child is not None:
            self._child.poll()  # else a dead child would stay a zombie
        return self._process is not None and is_live(self._process)

    def start(self, on_progress: OnProgress | None = None) -> None:
        """Return once the server accepts connections and the `coatcheck` database exists.

        Creates the cluster on the first boot, adopts a server that a killed owner left running, and
        waits for crash recovery without a time limit while the server is alive. Raises
        EmbeddedPostgresError if the folder is in use or unusable, or if PostgreSQL fails to start,
        with its messages.
        """
        if self.is_running():
            return
        report = _Reporter(on_progress)
        report(Phase.PREPARING)
        account = server_account(self._layout.cluster)
        check_usable(self._layout, account, suggestion=SYSTEM_DATA / self._layout.data.name)
        self._layout.create_folders()
        self._ownership.take()
        try:
            programs = Programs(runnable_bin(account), account)
            if not self._adopt(account, report):
                self._launch(programs, report)
            self._ensure_database(programs)
        except BaseException:
            self.stop("immediate")
            raise

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and release the data folder; does nothing if it is not running.

        `fast` disconnects everybody, `smart` waits for them to leave, `immediate` skips the final
        checkpoint. None of them loses committed data.
        """
        if self.is_running():
            self._signal(_STOP_SIGNALS[mode])
            if not self._ended_within(STOP_SECONDS_MAX):
                self._signal(signal.SIGQUIT)
                if not self._ended_within(STOP_SECONDS_MAX):
                    self.kill()
        self._forget_process()
        self._layout.remove_foreign_socket_dir(self._where_it_listens())
        self._socket_dir = None
        self._ownership.give_up()

    def kill(self) -> None:
        """End the server and all its processes by SIGKILL, like a power cut.

        The data folder stays ours: `start` recovers, `stop` releases it.
        """
        if self._process is not None:
            kill_with_children(self._process)
        self._forget_process()

    def restart(self, on_progress: OnProgress | None = None) -> None:
        """Stop cleanly and start again on the same data."""
        self.stop()
        self.start(on_progress)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _adopt(self, account: Account, report: _Reporter) -> bool:
        """Take over the server that a killed owner left running; False if there is none."""
        cluster = self._layout.cluster
        process = find_server(cluster, account)
        if process is None:
            return False
        self._process = process
        report(Phase.STARTING)
        while True:
            said = PidFile.read(cluster)
            if not self.is_running():
                self._forget_process()
                return False
            if said is not None and said.status == "ready":
                self._socket_dir = Path(said.socket_dir)
                return True
            report.again()
            time.sleep(READY_POLL_SECONDS)

    def _launch(self, programs: Programs, report: _Reporter) -> None:
        """Start a server on the cluster, which is created if missing, and wait for it."""
        layout = self._layout
        if layout.cluster.exists():
            check_version(layout)
        else:
            report(Phase.CREATING)
            create_cluster(layout, programs, superuser=SUPERUSER)

        was_killed = PidFile.read(layout.cluster) is not None
        report(Phase.RECOVERING if was_killed else Phase.STARTING)
        environment: dict[str, str] = {}
        if was_killed:
            kill_orphans(layout.cluster, programs.account)
            # PostgreSQL refuses to start while the id in its pid file is alive, unless a variable
            # says that this id belongs to its starter. Removing the file would work, too, but would
            # also remove the check that no process is attached to the old shared memory.
            stranger = stranger_pid(layout.cluster)
            if stranger is not None:
                environment["PG_GRANDPARENT_PID"] = str(stranger)

        self._socket_dir = layout.create_socket_dir(programs.account)
        layout.conf.write_text(settings_file(self._location_settings() | self._settings))
        layout.conf.chmod(0o644)  # the server's account reads it
        log_start = self._rotate_log()
        self._child = programs.serve(layout.cluster, layout.log, environment)
        self._process = psutil.Process(self._child.pid)
        self._wait_until_ready(self._child, log_start, report)

    def _location_settings(self) -> dict[str, Setting]:
        quoted = str(self._where_it_listens()).replace('"', '""')
        return {
            "cluster_name": cluster_name(self._layout.cluster),
            "port": PORT,
            "unix_socket_directories": f'"{quoted}"',
            "unix_socket_permissions": "0700",
        }

    def _wait_until_ready(
        self, child: subprocess.Popen[bytes], log_start: int, report: _Reporter
    ) -> None:
        while True:
            said = PidFile.read(self._layout.cluster)
            if said is not None and said.pid == child.pid and said.status == "ready":
                return
            if child.poll() is not None:
                self._forget_process()
                raise EmbeddedPostgresError(
                    f"PostgreSQL ended while starting:\n{self._log_since(log_start)}",
                    f"Its log is {self._layout.log}",
                )
            report.again()
            time.sleep(READY_POLL_SECONDS)

    def _ensure_database(self, programs: Programs) -> None:
        programs.psql(self._where_it_listens(), PORT, SUPERUSER, _CREATE_DATABASE_IF_MISSING)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            if self._process is not None:
                self._process.send_signal(number)

    def _ended_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.is_running():
            if time.monotonic() > deadline:
                return False
            time.sleep(READY_POLL_SECONDS)
        return True

    def _forget_process(self) -> None:
        if self._child is not None:
            self._child.poll()
        self._child = None
        self._process = None

    def _rotate_log(self) -> int:
        """Rotate a large log, keeping one; returns where this start's messages begin."""
        log = self._layout.log
        size = log.stat().st_size if log.exists() else 0
        if size <= LOG_BYTES_MAX:
            return size
        log.rename(log.with_suffix(".log.1"))
        return 0

    def _log_since(self, start: int) -> str:
        with self._layout.log.open("rb") as log:
            log.seek(start)
            return log.read()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()


class _Reporter:
    """Passes phases to the caller's callback, and repeats a long one every second."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._began = self._last = time.monotonic()
        self._phase = Phase.PREPARING

    def __call__(self, phase: Phase) -> None:
        self._phase = phase
        self._last = time.monotonic()
        if self._on_progress is not None:
            self._on_progress(phase, self._last - self._began)

    def again(self) -> None:
        if time.monotonic() - self._last >= PROGRESS_SECONDS:
            self(self._phase)
