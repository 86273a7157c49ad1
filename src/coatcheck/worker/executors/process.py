"""A child process with its own process group, which the worker kills as a whole.

The order at the end matters. The leader's PID is also the group's id, and the kernel keeps both
until the leader is reaped. So the group is killed first and the leader reaped second: the group
signalled here is never someone else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended. A negative ``status`` is the signal that ended it."""

    status: int
    cpu_seconds: float

    @property
    def signal(self) -> int | None:
        return -self.status if self.status < 0 else None


class GroupProcess:
    """A child process and its group. ``exited`` is done once the group is killed and reaped.

    Create it on the event loop's thread, which the kernel treats as the child's parent: a child
    that asks to die with its parent dies with the thread that started it.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str],
        pass_descriptor: int,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[Exit] = self._loop.create_future()
        # No preexec_fn: with one, Python would copy this process to start the child.
        self._process = subprocess.Popen(
            arguments,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            pass_fds=(pass_descriptor,),
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.stdout = cast("IO[bytes]", self._process.stdout)
        self.stderr = cast("IO[bytes]", self._process.stderr)
        try:
            self._watch()
        except OSError:
            self._process.kill()
            self._process.wait()
            self.stdout.close()
            self.stderr.close()
            raise

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to every process of the group, if it has not ended."""
        if not self.exited.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _watch(self) -> None:
        if sys.platform == "linux":
            handle = os.pidfd_open(self.pid)

            def leader_ended() -> None:
                self._loop.remove_reader(handle)
                os.close(handle)
                self.signal_group(signal.SIGKILL)
                self._ended(*os.wait4(self.pid, 0))

            self._loop.add_reader(handle, leader_ended)
        else:
            # There is no pidfd to wait on, so the leader must be reaped first.
            threading.Thread(target=self._watch_in_thread, daemon=True).start()

    def _watch_in_thread(self) -> None:
        reaped = os.wait4(self.pid, 0)
        self.signal_group(signal.SIGKILL)
        self._loop.call_soon_threadsafe(self._ended, *reaped)

    def _ended(self, _: int, status: int, usage: resource.struct_rusage) -> None:
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code  # so that Popen does not wait for this PID again
        self.exited.set_result(Exit(code, usage.ru_utime + usage.ru_stime))
