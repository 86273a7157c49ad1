"""The child process of an isolated job, which ``isolated.py`` starts.

    python -P -m coatcheck.worker.executors.child DESCRIPTOR PARENT

DESCRIPTOR is the socket to the worker, PARENT the worker's process id. The handler's thread is the
only one: it sends reports itself, and reads messages from the worker when the handler checks for
them.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import os
import resource
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, NoReturn

from coatcheck.domain.errors import InvalidInput, JobSignal
from coatcheck.domain.failures import CoreFailure
from coatcheck.domain.states import Outcome, Retryable
from coatcheck.job import DONE, Attachment, Job, Report
from coatcheck.process_access import give_up_capabilities
from coatcheck.service.signature import Signature
from coatcheck.worker.executors import wire
from coatcheck.worker.executors.outcomes import (
    meant,
    out_of_memory,
    outcome_of_error,
    outcome_of_value,
    trace_of,
)

_PR_SET_PDEATHSIG: Final = 1
_STAGED_PREFIX: Final = ".coatcheck-attachment-"


class Terminated(BaseException):
    """Raised in the handler by SIGTERM, so that its ``finally`` blocks run."""


class Channel:
    """The socket to the worker. Safe to use from any thread of the handler."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._guard = threading.Lock()
        self._unread = bytearray()
        self.cancel_requested = False
        self.on_cancel: Callable[[], object] | None = None
        """Called when the worker requests cancellation, in the thread that read the message."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: wire.FromProcess) -> None:
        with self._guard:
            self._socket.sendall(wire.frame(message))

    def attach(self, message: wire.AttachedFile) -> None:
        """Send the name of a file, and wait until the worker has read the file."""
        with self._guard:
            self._socket.sendall(wire.frame(message))
            while not isinstance(self._receive(), wire.Attached):
                pass

    def start(self) -> wire.Start:
        with self._guard:
            message = self._receive()
        if not isinstance(message, wire.Start):
            raise wire.BadFrame("the first message must be Start")
        return message

    def poll(self) -> None:
        """Read pending messages from the worker, without waiting."""
        if not self._guard.acquire(blocking=False):
            return  # another thread is reading
        try:
            while True:
                while self._next() is not None:
                    pass
                self._fill(socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        finally:
            self._guard.release()

    def _receive(self) -> wire.ToProcess:
        while True:
            message = self._next()
            if message is not None:
                return message
            self._fill(0)

    def _fill(self, flags: int) -> None:
        data = self._socket.recv(64 * 1024, flags)
        if not data:
            os._exit(1)  # the worker is gone
        self._unread += data

    def _next(self) -> wire.ToProcess | None:
        if len(self._unread) < wire.LENGTH_BYTES:
            return None
        end = wire.LENGTH_BYTES + wire.body_length(self._unread[: wire.LENGTH_BYTES])
        if len(self._unread) < end:
            return None
        message = wire.message_to_process(bytes(self._unread[wire.LENGTH_BYTES : end]))
        del self._unread[:end]
        if isinstance(message, wire.Cancel):
            self.cancel_requested = True
            if self.on_cancel is not None:
                self.on_cancel()
        return message


class ChannelReporter:
    """Sends reports to the worker. The call blocks until there is room, so nothing to await."""

    def __init__(self, channel: Channel, directory: Path) -> None:
        self._channel = channel
        self._directory = directory
        self._staged = 0

    def report(self, report: Report) -> Awaitable[None]:
        if isinstance(report, Attachment):
            self._attach(report)
        else:
            self._channel.send(report)
        return DONE

    def _attach(self, attachment: Attachment) -> None:
        data = attachment.data
        if isinstance(data, Path) and data.resolve().is_relative_to(self._directory):
            self._send(attachment, data.resolve())
            return
        # The worker only reads from the job's own folder.
        self._staged += 1
        staged = self._directory / f"{_STAGED_PREFIX}{self._staged}"
        try:
            with staged.open("wb") as target:
                if isinstance(data, bytes):
                    target.write(data)
                elif isinstance(data, Path):
                    with data.open("rb") as source:
                        shutil.copyfileobj(source, target)
                else:
                    shutil.copyfileobj(data, target)
            self._send(Attachment(attachment.name, attachment.media_type, staged), staged)
        finally:
            staged.unlink(missing_ok=True)

    def _send(self, attachment: Attachment, file: Path) -> None:
        path = str(file.relative_to(self._directory))
        self._channel.attach(wire.AttachedFile(attachment.name, attachment.media_type, path))


class IsolatedJob(Job):
    """A job that checks the socket for its cancellation."""

    __slots__ = ("_channel",)

    def __init__(self, start: wire.Start, channel: Channel, directory: Path) -> None:
        super().__init__(
            start.job,
            start.org,
            start.endpoint,
            start.lane,
            start.attempt,
            len(start.payload),
            start.request_id,
            ChannelReporter(channel, directory),
            directory,
        )
        self._channel = channel

    @property
    def cancel_requested(self) -> bool:
        if not self._channel.cancel_requested:
            self._channel.poll()
        return self._channel.cancel_requested


def main() -> NoReturn:
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    _die_with(parent)
    give_up_capabilities()
    os.set_inheritable(descriptor, False)
    own = os.getpid()
    channel = Channel(socket.socket(fileno=descriptor))
    start = channel.start()
    try:
        _limit(start)
        with _in_trace(start.traceparent):
            ended = _run(start, channel)
        if os.getpid() != own:
            os._exit(1)  # the handler forked and both returned; only one may answer
        sys.stdout.flush()
        sys.stderr.flush()
        channel.send(ended)
    except MemoryError:
        os._exit(wire.OUT_OF_MEMORY_STATUS)
    except Terminated:
        os._exit(128 + signal.SIGTERM)
    # Neither threads left behind by the handler nor its exit hooks may delay the job.
    os._exit(0)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when the worker dies."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)  # the worker died before the call above


def _limit(start: wire.Start) -> None:
    _lower(resource.RLIMIT_CORE, 0, 0)
    if start.memory_mb is not None:
        size = start.memory_mb * 1024 * 1024
        _lower(resource.RLIMIT_AS, size, size)
    if start.cpu_seconds is not None:
        # SIGXCPU at the soft limit, SIGKILL at the hard limit.
        _lower(resource.RLIMIT_CPU, start.cpu_seconds, start.cpu_seconds + 1)


def _lower(kind: int, soft: int, hard: int) -> None:
    _, highest = resource.getrlimit(kind)
    if highest != resource.RLIM_INFINITY:
        soft, hard = min(soft, highest), min(hard, highest)
    resource.setrlimit(kind, (soft, hard))


def _in_trace(traceparent: str | None) -> AbstractContextManager[None]:
    """Make the worker's span the parent of spans that the handler records."""
    if traceparent is None:
        return nullcontext()
    from coatcheck.telemetry import tracing  # imported late: only traced jobs need it

    return tracing.continuing(traceparent)


def _run(start: wire.Start, channel: Channel) -> wire.ExecutionEnded:
    try:
        return wire.ended(_call(start, channel), None)
    except Terminated:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
        if isinstance(error, MemoryError) and start.memory_mb is not None:
            return wire.ended(out_of_memory(start.memory_mb), None)
        said = isinstance(meant(error), (JobSignal, InvalidInput))
        return wire.ended(outcome_of_error(error), None if said else trace_of(error))


def _call(start: wire.Start, channel: Channel) -> Outcome:
    try:
        function = _find(start.module, start.qualname)
    except (ImportError, AttributeError) as error:
        return Retryable(
            CoreFailure.HANDLER_NOT_IMPORTABLE,
            f"{start.module}:{start.qualname} could not be imported: {type(error).__name__}",
        )
    signature = Signature(function)
    arguments = signature.decode(start.payload)
    job = IsolatedJob(start, channel, Path.cwd())
    if signature.job_parameter is not None:
        arguments[signature.job_parameter] = job
    if inspect.iscoroutinefunction(function):
        import asyncio  # imported late: it would double the start time of a plain function

        value = asyncio.run(_call_async(function, arguments, job, channel))
    else:
        signal.signal(signal.SIGTERM, _raise_terminated)
        value = function(**arguments)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return outcome_of_value(value)


def _find(module: str, qualname: str) -> Callable[..., Any]:
    place: Any = importlib.import_module(module)
    for name in qualname.split("."):
        place = getattr(place, name)
    found: Callable[..., Any] = place
    return found


async def _call_async(
    function: Callable[..., Any], arguments: dict[str, Any], job: IsolatedJob, channel: Channel
) -> Any:
    import asyncio

    loop = asyncio.get_running_loop()
    handler = asyncio.ensure_future(function(**arguments))
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        handler.cancel()

    loop.add_signal_handler(signal.SIGTERM, terminate)
    # A thread of the handler may read it while it waits for an attachment.
    channel.on_cancel = lambda: loop.call_soon_threadsafe(job.mark_cancel_requested)
    loop.add_reader(channel.fileno(), channel.poll)
    try:
        return await handler
    except asyncio.CancelledError:
        if terminated:
            raise Terminated from None
        raise
    finally:
        loop.remove_reader(channel.fileno())
        loop.remove_signal_handler(signal.SIGTERM)


def _raise_terminated(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise Terminated


if __name__ == "__main__":
    main()
