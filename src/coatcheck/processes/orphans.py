"""Kills orphan processes: those that outlived the job they were started for.

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
import sys
from pathlib import Path
from typing import Final

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
