"""Which process this is, and whether another one, that said so of itself, is gone.

A number names a process only within a PID namespace, and only until it is given out again. So a
process is named by three things: the host, its number there, and when it started. "Gone" is said
only of a process of this very host, and only on proof: the kernel knows no process of that number,
or one that started at another time, or one all of whose threads have ended (a zombie that nobody
has reaped yet). A process that is stopped, traced, swapped out or stuck in a system call is there.

The host is what makes the numbers comparable, and nothing less: this boot of the kernel, the PID
namespace (containers on one machine, or of one name, have one each), the time namespace (which
start times are shown in), the host's name, and the user. The name tells virtual machines apart that
were made of one snapshot and share the rest. The user is in it because what a dead process left
behind has to be ended before its work begins again, and only the same user can see all of that.
Where any of it cannot be established, a process has no host, and nothing is ever said of it: that
is so on every system but Linux.

Start times are the kernel's, in ticks since its boot. No wall clock is read.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

_PROC: Final = Path("/proc")
_BOOT_ID: Final = _PROC / "sys/kernel/random/boot_id"
_ENDED: Final = frozenset("ZXx")
"""The states of a thread that runs no more: a zombie, or one that the kernel is removing."""
_TICKS_FIELD: Final = 19
"""Where a process's start time is, counted from its state, the first after its name."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, as it says of itself. Without a host nobody can tell whether it is gone."""

    process: UUID
    host: str | None = None
    pid: int | None = None
    ticks: int | None = None


_name: UUID = uuid4()


def name_this_process(name: UUID) -> None:
    """Have this process go by a name that whoever started it has chosen, and knows it by."""
    global _name  # a process has one name
    _name = name


def this_process() -> ProcessIdentity:
    """Who this process is."""
    host = this_host()
    ticks = None if host is None else _stat(_PROC / "self")
    if host is None or ticks is None:
        return ProcessIdentity(_name)
    return ProcessIdentity(_name, host, os.getpid(), ticks[1])


def this_host() -> str | None:
    """What all processes have in common whose deaths can be seen here; None if that is unknown."""
    if sys.platform != "linux":
        return None
    try:
        if (_PROC / "self").readlink().name != str(os.getpid()):
            return None  # /proc is another namespace's: its numbers are not ours
        parts = [
            _BOOT_ID.read_text().strip(),
            str((_PROC / "self/ns/pid").readlink()),
            _time_namespace(),
            socket.gethostname(),
            f"uid:{os.geteuid()}",
        ]
    except OSError:
        return None
    return " ".join(parts) if all(parts) else None


def is_gone(pid: int, ticks: int) -> bool:
    """Whether no thread can run any more of the process of that number, here, which started then.

    False whenever that is not certain.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # there is one, and it is not ours to look at
    seen = _stat(_PROC / str(pid))
    if seen is None:
        return False  # it has just ended, or is hidden: the next look will tell
    state, started = seen
    if started != ticks:
        return True  # the number is another's by now
    # The first thread may have ended while others go on.
    return state in _ENDED and _all_threads_ended(pid)


def _all_threads_ended(pid: int) -> bool:
    try:
        threads = [thread.name for thread in os.scandir(_PROC / str(pid) / "task")]
    except OSError:
        return False
    states = [_stat(_PROC / str(pid) / "task" / thread) for thread in threads]
    return all(seen is not None and seen[0] in _ENDED for seen in states)


def _stat(folder: Path) -> tuple[str, int] | None:
    """The state and the start of a process or a thread; None if the kernel does not say."""
    try:
        text = (folder / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name is in parentheses, and may hold anything, parentheses and spaces as well.
    fields = text.rpartition(")")[2].split()
    return (fields[0], int(fields[_TICKS_FIELD])) if len(fields) > _TICKS_FIELD else None


def _time_namespace() -> str:
    try:
        return str((_PROC / "self/ns/time").readlink())
    except FileNotFoundError:
        return "one time"  # a kernel that knows no such thing
