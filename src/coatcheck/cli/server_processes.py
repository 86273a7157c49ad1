"""Several server processes that share one listening socket, and the supervisor that keeps them
running.

The supervisor has imported everything and opened the socket before it forks. So the processes share
most of their memory, one that died is replaced at once, and while it is replaced the others accept
the connections that wait on the socket. Whichever process is idle accepts the next one.

A fork copies nothing that is under way: the supervisor has one thread and no event loop,
no connection to the database and nothing to count. It only waits for signals and for its children.
As the first process of a container it also reaps whatever orphans the kernel gives it.

Every process ends when the supervisor ends, even by ``kill -9``: it reads a pipe whose other end
nobody but the supervisor holds.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from coatcheck.cli.command_errors import EXIT_FAILED
from coatcheck.cli.process import SIGNAL_EXIT_BASE
from coatcheck.domain.retry import Backoff

_log = logging.getLogger(__name__)

HEALTHY_SECONDS: Final = 30.0
"""A process that ran this long was healthy: the restart delay starts over."""
STOP_SECONDS_MARGIN: Final = 10.0
"""A process that is told to stop has its grace period, and this long to close what it has open."""
_RESTART_BACKOFF: Final = Backoff(base_seconds=0.5, cap_seconds=30.0, jitter=0.0)
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_WATCHED: Final = (*_STOP_SIGNALS, signal.SIGCHLD)
_PID_BYTES: Final = 4
_PIPE_BYTES: Final = 4096
_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """What a forked process knows of itself."""

    number: int
    """From 1."""
    is_restarted: bool
    supervisor: int
    """A file that can be read to its end when the supervisor has ended."""
    ready: Callable[[], None]
    """To be called when it answers requests."""


@dataclass(frozen=True, slots=True)
class AllEnded:
    """In the supervisor: every process has ended."""

    exit_code: int


@dataclass(slots=True, eq=False)
class _Slot:
    """The place of one process, which is filled again when the process dies."""

    number: int
    pid: int | None = None
    due_at: float = 0.0
    """When to start its process, while it has none."""
    began_at: float = 0.0
    starts: int = 0
    failures: int = 0
    is_ready: bool = False


def run_server_processes(
    count: int, listening: socket.socket, *, drain_seconds: float, stdin: int | None = None
) -> ServerProcess | AllEnded:
    """Fork ``count`` processes and keep them running until SIGTERM or SIGINT.

    Returns in each process, and in the supervisor when all of them have ended. ``stdin``: a file
    that the supervisor's own supervisor closes when it ends.
    """
    return _Supervisor(count, listening, drain_seconds, stdin).run()


class _Supervisor:
    def __init__(
        self, count: int, listening: socket.socket, drain_seconds: float, stdin: int | None
    ) -> None:
        self._slots = [_Slot(number) for number in range(1, count + 1)]
        self._listening = listening
        self._drain_seconds = drain_seconds
        self._stdin = stdin
        self._stop_by: float | None = None
        """While it stops: when it kills what still runs."""
        self._exit_code = 0
        self._have_served = False
        """Whether all have been ready once: from then on, one that ends is started again."""
        self._supervised, self._alive = os.pipe()
        self._ready, self._tell_ready = os.pipe()
        self._woken, self._wake = os.pipe()

    def run(self) -> ServerProcess | AllEnded:
        # Collections in a child would copy what it shares with the others.
        gc.collect()
        gc.freeze()
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake)
        for number in _WATCHED:
            signal.signal(number, lambda *_: None)
        while True:
            process = self._start_due()
            if process is not None:
                return process
            if self._stop_by is not None and not self._running():
                return AllEnded(self._exit_code)
            self._wait()

    def _running(self) -> dict[int, _Slot]:
        return {slot.pid: slot for slot in self._slots if slot.pid is not None}

    # Starting

    def _start_due(self) -> ServerProcess | None:
        """Start the processes that are due. In such a process: what it is."""
        for slot in self._slots:
            if slot.pid is not None or self._stop_by is not None:
                continue
            if time.monotonic() < slot.due_at:
                continue
            slot.began_at = time.monotonic()
            slot.starts += 1
            try:
                slot.pid = self._fork()
            except OSError as error:
                self._start_later(slot, f"could not start ({error.strerror})")
            if slot.pid == 0:
                return ServerProcess(
                    slot.number, slot.starts > 1, self._supervised, self._tell_supervisor
                )
        return None

    def _fork(self) -> int:
        # A signal that comes before the child handles it in its own way waits until then.
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        try:
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                # Ctrl-C reaches every process of a terminal; this one waits to be told.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                for file in (self._alive, self._ready, self._woken, self._wake):
                    os.close(file)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        return pid

    def _tell_supervisor(self) -> None:
        os.write(self._tell_ready, os.getpid().to_bytes(_PID_BYTES))

    def _start_later(self, slot: _Slot, why: str) -> None:
        now = time.monotonic()
        if now - slot.began_at > HEALTHY_SECONDS:
            slot.failures = 0
        delay = _RESTART_BACKOFF.delay(slot.failures, 0.0)
        slot.failures += 1
        slot.due_at = now + delay
        _log.warning("server process %d %s; starting it again in %g s", slot.number, why, delay)

    # Watching

    def _wait(self) -> None:
        """Wait for whatever comes next, and handle it."""
        files = [self._ready, self._woken, *([] if self._stdin is None else [self._stdin])]
        found, _, _ = select.select(files, [], [], self._seconds_to_next())
        if self._ready in found:
            self._note_ready(os.read(self._ready, _PIPE_BYTES))
        signals = os.read(self._woken, _PIPE_BYTES) if self._woken in found else b""
        if signal.SIGCHLD in signals:
            self._reap()
        for number in signals:
            if number in _STOP_SIGNALS:
                self._stop_requested(signal.Signals(number))
        if self._stdin is not None and self._stdin in found and not os.read(self._stdin, 1):
            self._stdin = None
            self._stop()
        if self._stop_by is not None and time.monotonic() >= self._stop_by:
            for slot in self._running().values():
                _log.warning("server process %d did not stop in time; killing it", slot.number)
            self._kill()

    def _seconds_to_next(self) -> float | None:
        due = [slot.due_at for slot in self._slots if slot.pid is None]
        if self._stop_by is not None:
            due = [self._stop_by]
        left = min(due, default=_NEVER) - time.monotonic()
        return None if left == _NEVER else max(0.0, left)

    def _note_ready(self, pids: bytes) -> None:
        running = self._running()
        for at in range(0, len(pids), _PID_BYTES):
            slot = running.get(int.from_bytes(pids[at : at + _PID_BYTES]))
            if slot is not None:
                slot.is_ready = True
                _log.info("server process %d (pid %d) is ready", slot.number, slot.pid)
        if not self._have_served and all(slot.is_ready for slot in self._slots):
            self._have_served = True
            host, port = self._listening.getsockname()[:2]
            _log.info("serving on http://%s:%d with %d processes", host, port, len(self._slots))

    def _reap(self) -> None:
        """Handle every child that has ended. The first process of a container has orphans, too."""
        running = self._running()
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return  # there are no children
            if pid == 0:
                return
            slot = running.get(pid)
            if slot is not None:
                slot.pid, slot.is_ready = None, False
                self._ended(slot, os.waitstatus_to_exitcode(status))

    def _ended(self, slot: _Slot, code: int) -> None:
        how = (
            f"exited with code {code}"
            if code >= 0
            else f"was ended by signal {-code} ({signal.strsignal(-code)})"
        )
        if self._stop_by is not None:
            if code not in (0, -signal.SIGTERM):  # or it had not come to handle signals
                _log.warning("server process %d %s", slot.number, how)
                self._exit_code = self._exit_code or EXIT_FAILED
        elif code > 0 and not self._have_served:
            # It has said why, and the next start would fail as well.
            self._exit_code = code
            self._stop()
        else:
            self._start_later(slot, how)

    # Stopping

    def _stop_requested(self, number: signal.Signals) -> None:
        if self._stop_by is None:
            _log.info("received %s; stopping", number.name)
            self._stop()
        else:
            _log.warning("exiting at once: second %s", number.name)
            self._exit_code = SIGNAL_EXIT_BASE + number
            self._kill()

    def _stop(self) -> None:
        """Tell all processes to stop. Whoever connects from now on is refused."""
        if self._stop_by is None:
            self._stop_by = time.monotonic() + self._drain_seconds + STOP_SECONDS_MARGIN
            self._listening.close()
            self._signal(signal.SIGTERM)

    def _kill(self) -> None:
        self._stop_by = _NEVER
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._running():
            os.kill(pid, number)  # its pid cannot be another's: it was not reaped
