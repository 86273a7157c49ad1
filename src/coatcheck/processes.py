"""Identifies processes, so that one process can prove that another one has died.

A PID names a process only within a PID namespace, and only until it is reused. So three things
identify a process: the host, its PID there, and its start time. A process counts as gone only if it
ran on this very host, and only on proof: the kernel knows no process of that PID, or one with a
different start time, or one whose threads have all ended (an unreaped zombie). A process that is
stopped, traced, swapped out or stuck in a system call still exists.

"Host" means everything that makes PIDs comparable: this boot of the kernel, the PID namespace
(each container has its own, even with the same name), the time namespace (which shifts start
times), the host name, and the user. The host name tells virtual machines apart that were cloned
from one snapshot and share the rest. The user is included because the leftovers of a dead process
must be ended before its work starts again, and only the same user can see all of them. If any of it
cannot be determined, a process has no host and never counts as gone: that is so on every system but
Linux.

Start times are the kernel's, in ticks since boot. No wall clock is read.

It also kills orphan processes: those that outlived the job they were started for.

An isolated job's process leads a process group, and the group is killed with it. Two kinds of
process escape that: one that moved to its own session, and, when the worker itself was killed
with ``kill -9``, the children of the job's process. Both still have the job's private folder as
``TMPDIR`` in their environment, which is how they are found here.

Linux only: it reads /proc. On other systems it finds and kills nothing.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

PROC: Final = Path("/proc")
_BOOT_ID: Final = PROC / "sys/kernel/random/boot_id"
_ENDED: Final = frozenset("ZXx")
"""States of a thread that no longer runs: a zombie, or one that the kernel is removing."""
_TICKS_FIELD: Final = 19
"""The index of the start time in /proc/PID/stat, counted from the field after the name."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """How a process identifies itself. Without a host, nobody can tell whether it is gone."""

    process: UUID
    host: str | None = None
    pid: int | None = None
    ticks: int | None = None


_name: UUID = uuid4()


def name_this_process(name: UUID) -> None:
    """Give this process the name by which its parent process knows it."""
    global _name  # a process has one name
    _name = name


def this_process() -> ProcessIdentity:
    """The identity of this process."""
    host = this_host()
    ticks = None if host is None else _stat(PROC / "self")
    if host is None or ticks is None:
        return ProcessIdentity(_name)
    return ProcessIdentity(_name, host, os.getpid(), ticks[1])


def this_host() -> str | None:
    """The host identity, shared by all processes whose deaths are visible here; None if unknown."""
    if sys.platform != "linux":
        return None
    try:
        if (PROC / "self").readlink().name != str(os.getpid()):
            return None  # /proc belongs to another namespace: its PIDs are not ours
        parts = [
            _BOOT_ID.read_text().strip(),
            str((PROC / "self/ns/pid").readlink()),
            _time_namespace(),
            socket.gethostname(),
            f"uid:{os.geteuid()}",
        ]
    except OSError:
        return None
    return " ".join(parts) if all(parts) else None


def is_gone(pid: int, ticks: int) -> bool:
    """Whether the process with this PID and start time on this host can run no more code.

    False whenever that is uncertain.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # it exists, but we may not signal it
    seen = _stat(PROC / str(pid))
    if seen is None:
        return False  # it has just ended, or is hidden: the next check will tell
    state, started = seen
    if started != ticks:
        return True  # the PID was reused
    # The main thread may have ended while others still run.
    return state in _ENDED and _all_threads_ended(pid)


def _all_threads_ended(pid: int) -> bool:
    try:
        threads = [thread.name for thread in os.scandir(PROC / str(pid) / "task")]
    except OSError:
        return False
    states = [_stat(PROC / str(pid) / "task" / thread) for thread in threads]
    return all(seen is not None and seen[0] in _ENDED for seen in states)


def _stat(folder: Path) -> tuple[str, int] | None:
    """The state and start time of a process or thread; None if the kernel does not say."""
    try:
        text = (folder / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name is in parentheses, and may contain anything, even parentheses and spaces.
    fields = text.rpartition(")")[2].split()
    return (fields[0], int(fields[_TICKS_FIELD])) if len(fields) > _TICKS_FIELD else None


def _time_namespace() -> str:
    try:
        return str((PROC / "self/ns/time").readlink())
    except FileNotFoundError:
        return "one time"  # the kernel has no time namespaces


_PASSES_MAX: Final = 10
"""A process may fork during the search, so the search is repeated."""

_DEATH_MILLISECONDS_MAX: Final = 1_000


def kill_strays(directory: Path) -> int:
    """Kill every process whose TMPDIR is ``directory`` or inside it; returns how many were found.

    Returns when they are gone, or after a second if the kernel takes longer to end one.
    """
    if sys.platform != "linux":
        return 0
    killed = 0
    for _ in range(_PASSES_MAX):
        found = sum(_kill_if_stray(pid, directory) for pid in _other_processes())
        if found == 0:
            break
        killed += found
    return killed


def _other_processes() -> list[int]:
    own = os.getpid()
    return [
        int(entry.name)
        for entry in os.scandir("/proc")
        if entry.name.isdigit() and int(entry.name) != own
    ]


if sys.platform == "linux":

    def _kill_if_stray(pid: int, directory: Path) -> bool:
        # Opened before the check, so that the process killed is the one that was checked, even if
        # it ends in between and its PID is reused.
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return False  # gone already
        try:
            if not _lives_in(pid, directory):
                return False
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.poll(_DEATH_MILLISECONDS_MAX)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)

    def _lives_in(pid: int, directory: Path) -> bool:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False  # gone, a zombie, or another user's
        home = b"TMPDIR=" + os.fsencode(directory)
        return any(
            entry == home or entry.startswith(home + b"/") for entry in environment.split(b"\0")
        )
