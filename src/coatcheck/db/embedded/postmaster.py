"""Which process, if any, serves a cluster.

PostgreSQL leaves its process id in `postmaster.pid`. After a kill -9 or a power cut that file is
still there, and the id in it may by now belong to a stranger, all the more in containers where ids
are small. So a process counts as the cluster's server only if it is a postgres, run by the right
account, started on this very folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from coatcheck.db.embedded.account import Account
from coatcheck.db.embedded.errors import EmbeddedPostgresError

EXIT_SECONDS_MAX = 30.0
EXIT_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class PidFile:
    """What a running, or no longer running, server says of itself."""

    pid: int
    socket_dir: str
    status: str

    @classmethod
    def read(cls, cluster: Path) -> PidFile | None:
        """The cluster's pid file, or None if there is none (a server stopped in good order)."""
        try:
            lines = (cluster / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        # The server writes the first lines at once and the last ones as it comes up.
        fields = [line.strip() for line in lines] + [""] * 8
        if not fields[0].isdigit():
            return cls(0, "", "")
        return cls(int(fields[0]), fields[4], fields[7])


def find_server(cluster: Path, account: Account) -> psutil.Process | None:
    """The live server of `cluster`, or None.

    Raises EmbeddedPostgresError when the pid file names a live server of another folder: then this
    folder is a copy of one in use, or was moved under its server, and starting would risk both.
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
    """The id in the pid file if a live process has it; ask only when `find_server` found none."""
    left = PidFile.read(cluster)
    return left.pid if left is not None and left.pid and psutil.pid_exists(left.pid) else None


def cluster_name(cluster: Path) -> str:
    """A name that the server's processes carry in their titles, by which orphans are found."""
    return f"coatcheck-{hashlib.sha256(os.fsencode(cluster)).hexdigest()[:12]}"


def kill_with_children(postmaster: psutil.Process) -> None:
    """SIGKILL a server and all its processes, as a power cut would end them."""
    with contextlib.suppress(psutil.NoSuchProcess):
        postmaster.suspend()  # a stopped postmaster starts no further process meanwhile
        end_processes([postmaster, *postmaster.children(recursive=True)])


def kill_orphans(cluster: Path, account: Account) -> None:
    """End processes that outlived their killed server: none may touch the cluster's files now."""
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
    # Not psutil.wait_procs: in a container whose first process reaps nobody, an ended process stays
    # a zombie for good, and a zombie holds nothing any more.
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
