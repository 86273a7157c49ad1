"""Runs a handler in its own process, which can be killed.

Each attempt gets a new process, so that nothing of one job is left for the next: its own memory,
its own process group, limits on address space and CPU time, and a private folder that is removed
however the process ends. It gets none of the worker's settings and secrets: its environment is
built from a short list.

After a cancellation request the handler sees ``job.cancel_requested``. When the task that awaits
``run`` is cancelled (a timeout, a forced cancellation, a lost lease), the whole group gets SIGTERM,
which unwinds the handler so that its ``finally`` blocks run, and after a grace period SIGKILL. If
the worker dies, the kernel kills the process; the next sweep removes its folder and kills the
processes that it had started (see ``worker/temp_dirs.py``).

Isolation protects against accidents: the process runs as the worker's user, and is not a sandbox
for hostile code. It cannot read the worker's memory and environment (``process_access.py``).

The worker kills the process group as a whole. The order at the end matters.
The leader's PID is also the group's id, and the kernel keeps both
until the leader is reaped. So the group is killed first and the leader reaped second: the group
signalled here is never someone else's.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Literal, TypeVar, cast

from coatcheck.domain.failures import CoreFailure
from coatcheck.domain.limits import LOG_LINE_CHARACTERS_MAX, REPORTS_UNDERWAY_BYTES
from coatcheck.domain.states import Outcome, Retryable
from coatcheck.job import Attachment, Job, LogLevel, LogLine, Reporter, bytes_held, storable_text
from coatcheck.service import Endpoint
from coatcheck.telemetry import tracing
from coatcheck.worker.executors import wire
from coatcheck.worker.executors.outcomes import (
    log_error,
    log_trace,
    out_of_memory,
    outcome_of_error,
)
from coatcheck.worker.temp_dirs import TempRoot, open_within


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


PRINTED_LINES_MAX: Final = 10_000
"""How many lines one stream of one attempt may add to a job's log. The rest is discarded."""

_READ_BYTES: Final = 64 * 1024
_LEVELS: Final[dict[str, LogLevel]] = {"stdout": "info", "stderr": "warning"}


async def capture(
    pipe: asyncio.StreamReader,
    stream: Literal["stdout", "stderr"],
    report: Callable[[LogLine], Awaitable[None]],
) -> None:
    """Report each line until the end of the pipe. A line too long for the log is split.

    Nothing is read while a report waits to be stored, so the process blocks once the pipe is full.
    """
    lines = _CapturedLines()
    kept = 0
    while True:
        data = await pipe.read(_READ_BYTES)
        for text in lines.feed(data):
            kept += 1
            if kept <= PRINTED_LINES_MAX:
                await report(LogLine(text, _LEVELS[stream], {"stream": stream}))
            elif kept == PRINTED_LINES_MAX + 1:
                notice = f"{stream} has more than {PRINTED_LINES_MAX} lines; the rest is dropped"
                await report(LogLine(notice, "warning", {"stream": stream}))
        if not data:
            return


class _CapturedLines:
    """Splits a stream of bytes into lines of text."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> list[str]:
        """The lines that ``data`` completes; at the end of the stream (no data), the rest."""
        text = self._rest + self._decoder.decode(data, final=not data)
        *complete, self._rest = text.split("\n")
        while len(self._rest) >= LOG_LINE_CHARACTERS_MAX:
            complete.append(self._rest[:LOG_LINE_CHARACTERS_MAX])
            self._rest = self._rest[LOG_LINE_CHARACTERS_MAX:]
        if not data and self._rest:
            complete.append(self._rest)
            self._rest = ""
        return [piece for line in complete for piece in _pieces(line.removesuffix("\r"))]


def _pieces(line: str) -> list[str]:
    text = storable_text(line)
    return [
        text[start : start + LOG_LINE_CHARACTERS_MAX]
        for start in range(0, len(text), LOG_LINE_CHARACTERS_MAX)
    ]


GRACE_SECONDS: Final = 4.0
"""The time between SIGTERM and SIGKILL."""

HANG_UP_SECONDS: Final = 2.0
"""How long to read the pipes after the process ended, if one that escaped its group holds them."""

REPORTS_UNDERWAY_MAX: Final = 64
"""How many reports may wait to be stored before the process has to wait. Large ones count by their
bytes."""

PASSED_VARIABLES: Final = frozenset(
    {
        "HOME",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_CTYPE",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "PATH",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
    }
)
"""The variables that the process inherits from the worker's environment."""

_CHILD_MODULE: Final = "coatcheck.worker.executors.child"
_OWN_PREFIX: Final = "COATCHECK_"

Result = TypeVar("Result")


class IsolatedExecutor:
    """Runs each job in a new process.

    ``passed_variables`` names further variables that the process inherits, such as credentials for
    services that handlers call. Coatcheck's own settings cannot be passed.
    """

    def __init__(
        self,
        temp_root: TempRoot,
        *,
        grace_seconds: float = GRACE_SECONDS,
        passed_variables: Collection[str] = (),
    ) -> None:
        own = [name for name in passed_variables if name.startswith(_OWN_PREFIX)]
        if own:
            raise ValueError(f"handlers cannot get {', '.join(own)}: only the worker may have it")
        self._temp_root = temp_root
        self._grace_seconds = grace_seconds
        self._passed_variables = PASSED_VARIABLES | frozenset(passed_variables)

    async def run(self, endpoint: Endpoint, job: Job, payload: bytes) -> Outcome:
        """Run the handler once. Cancelling the awaiting task ends the process and raises.

        A second cancellation skips the grace period. Either way the process is dead, and its folder
        removed, before this raises.
        """
        try:
            async with self.folder(job.id) as directory:
                return await self.run_in(directory, endpoint, job, payload)
        except FolderNotMade as error:
            return error.outcome

    @asynccontextmanager
    async def folder(self, label: str) -> AsyncIterator[Path]:
        """A private folder for one job, always removed with its contents when the block ends."""
        try:
            directory = self._temp_root.create(label)
        except OSError as error:
            raise FolderNotMade(_not_started(error)) from error
        try:
            yield directory
        finally:
            loop = asyncio.get_running_loop()
            await _outlast(loop.run_in_executor(None, self._temp_root.remove, directory))

    async def run_in(
        self, directory: Path, endpoint: Endpoint, job: Job, payload: bytes
    ) -> Outcome:
        """Like ``run``, in a ``folder`` of the caller's, which may contain input and output files.

        It is the handler's working folder and ``job.temp_dir``.
        """
        try:
            child = _Child(directory, self._environment(directory))
        except OSError as error:
            return _not_started(error)
        ending: wire.ExecutionEnded | None = None
        try:
            async with asyncio.TaskGroup() as group:
                try:
                    ending = await _converse(child, group, _start(endpoint, job, payload), job)
                except asyncio.CancelledError:
                    await self._terminate(child)
                    raise
                finally:
                    child.process.signal_group(signal.SIGKILL)
                    await _outlast(child.process.exited)
        except BaseExceptionGroup as errors:
            # Storing a report failed, or the process sent an invalid message.
            log_error(job, errors)
            return outcome_of_error(errors)
        finally:
            child.hang_up()
            os.close(child.folder)
        if ending is None:
            return _outcome_of_exit(child.process.exited.result(), endpoint)
        if ending.trace is not None:
            log_trace(job, ending.trace)
        return wire.outcome(ending)

    async def _terminate(self, child: _Child) -> None:
        child.process.signal_group(signal.SIGTERM)
        await asyncio.wait([child.process.exited], timeout=self._grace_seconds)

    def _environment(self, directory: Path) -> Mapping[str, str]:
        passed = {
            name: value for name, value in os.environ.items() if name in self._passed_variables
        }
        return passed | {
            "TMPDIR": str(directory),
            # Modules are found in the same order as in the worker.
            "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path),
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
        }


class FolderNotMade(Exception):
    """A job's folder could not be created: no space left, or no permission."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class _Child:
    """The process and its three streams to the worker."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        # Kept open: this stays the original folder, whatever the handler puts in its place.
        self.folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            os.close(self.folder)
            raise
        # -P: nothing may be imported from the working folder, which is the job's.
        command = [sys.executable, "-P", "-m", _CHILD_MODULE]
        with theirs:
            try:
                self.process = GroupProcess(
                    [*command, str(theirs.fileno()), str(os.getpid())],
                    directory=directory,
                    environment=environment,
                    pass_descriptor=theirs.fileno(),
                )
            except OSError:
                ours.close()
                os.close(self.folder)
                raise
        self._socket = ours
        self._closers: dict[object, Callable[[], None]] = {
            stream: stream.close for stream in (ours, self.process.stdout, self.process.stderr)
        }
        self._hang_up_timer: asyncio.TimerHandle | None = None
        self.process.exited.add_done_callback(self._hang_up_soon)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(sock=self._socket)
        self._closers[self._socket] = writer.transport.abort
        return reader, writer

    async def connect_pipe(self, pipe: IO[bytes]) -> asyncio.StreamReader:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        self._closers[pipe] = transport.close
        return reader

    def hang_up(self) -> None:
        """Close the streams: readers see their end."""
        for close in self._closers.values():
            close()
        if self._hang_up_timer is not None:
            self._hang_up_timer.cancel()

    def _hang_up_soon(self, _: asyncio.Future[Exit]) -> None:
        loop = asyncio.get_running_loop()
        self._hang_up_timer = loop.call_later(HANG_UP_SECONDS, self.hang_up)


def _start(endpoint: Endpoint, job: Job, payload: bytes) -> wire.Start:
    return wire.Start(
        module=endpoint.function.__module__,
        qualname=endpoint.function.__qualname__,
        payload=payload,
        job=job.uuid,
        org=job.org,
        endpoint=job.endpoint,
        lane=job.lane,
        attempt=job.attempt,
        request_id=job.request_id,
        memory_mb=endpoint.memory_mb,
        cpu_seconds=endpoint.cpu_seconds,
        traceparent=tracing.current(),
    )


async def _converse(
    child: _Child, group: asyncio.TaskGroup, start: wire.Start, job: Job
) -> wire.ExecutionEnded | None:
    """Have the process run the job; returns its last message, or None if it died without one."""
    reader, writer = await child.connect()
    stdout = await child.connect_pipe(child.process.stdout)
    stderr = await child.connect_pipe(child.process.stderr)
    group.create_task(capture(stdout, "stdout", job.reporter.report))
    group.create_task(capture(stderr, "stderr", job.reporter.report))
    writer.write(wire.frame(start))
    cancel = group.create_task(_forward_cancellation(job, writer))
    try:
        return await _listen(reader, writer, child.folder, job.reporter)
    finally:
        cancel.cancel()


async def _forward_cancellation(job: Job, writer: asyncio.StreamWriter) -> None:
    await job.wait_cancelled()
    writer.write(wire.frame(wire.Cancel()))


async def _listen(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    folder: int,
    reporter: Reporter,
) -> wire.ExecutionEnded | None:
    underway: deque[tuple[Awaitable[None], int]] = deque()
    underway_bytes = 0
    while True:
        message = await _receive(reader)
        match message:
            case None:
                return None
            case wire.ExecutionEnded():
                while underway:
                    await underway.popleft()[0]
                return message
            case wire.AttachedFile(name=name, media_type=media_type, path=path):
                with _opened_within(folder, path) as file:
                    await reporter.report(Attachment(name, media_type, file))
                writer.write(wire.frame(wire.Attached()))
            case _:
                size = bytes_held(message)
                underway.append((reporter.report(message), size))
                underway_bytes += size
                while (
                    len(underway) > REPORTS_UNDERWAY_MAX or underway_bytes > REPORTS_UNDERWAY_BYTES
                ):
                    taken, size = underway.popleft()
                    underway_bytes -= size
                    await taken


async def _receive(reader: asyncio.StreamReader) -> wire.FromProcess | None:
    try:
        header = await reader.readexactly(wire.LENGTH_BYTES)
        body = await reader.readexactly(wire.body_length(header))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None  # it died, perhaps in the middle of a message
    return wire.message_from_process(body)


@contextmanager
def _opened_within(folder: int, path: str) -> Iterator[Path]:
    """A path to a file in the job's folder that nothing can redirect meanwhile."""
    try:
        file = open_within(folder, path)
    except OSError as error:
        raise wire.BadFrame(f"an attachment cannot be read: {error.strerror}") from error
    try:
        yield Path(f"/dev/fd/{file}")
    finally:
        os.close(file)


def _not_started(error: OSError) -> Outcome:
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    return Retryable(
        CoreFailure.CHILD_NOT_STARTED, f"the handler's process could not be started: {reason}"
    )


def _outcome_of_exit(ended: Exit, endpoint: Endpoint) -> Outcome:
    """The outcome of a process that ended without a result."""
    limit = endpoint.cpu_seconds
    # The kernel kills a process that ignores SIGXCPU a second later.
    if limit is not None and (
        ended.signal == signal.SIGXCPU
        or (ended.signal == signal.SIGKILL and ended.cpu_seconds >= limit)
    ):
        return Retryable(CoreFailure.CPU_LIMIT, f"the handler used more than {limit} s of CPU time")
    if ended.status == wire.OUT_OF_MEMORY_STATUS and endpoint.memory_mb is not None:
        return out_of_memory(endpoint.memory_mb)
    if ended.signal is None:
        how = f"exited with status {ended.status}"
    elif ended.signal == signal.SIGKILL:
        how = "was killed by SIGKILL, as the kernel does when the machine is out of memory,"
    else:
        how = f"was killed by {signal.Signals(ended.signal).name}"
    return Retryable(
        CoreFailure.CHILD_KILLED, f"the handler's process {how} before it returned a result"
    )


async def _outlast(future: asyncio.Future[Result]) -> Result:
    """Wait for something to finish, even if this task is cancelled meanwhile.

    Takes a plain future, not a task: at the end of a program asyncio cancels all tasks.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return future.result()
