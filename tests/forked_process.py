"""Python modules run as processes that start at once, forked from one that has imported Coatcheck.

A new interpreter spends more time on imports than most tests on their subject. Each pytest process
therefore starts one template (``python -m tests.forked_process``) when it is first needed. The
template imports what the commands and roles of the tests need, and forks for every start. What it
forks is a process like another: it has a pid, an environment, a folder, files and signals of its
own, runs ``module`` as ``python -m`` does, and ends as the interpreter ends. All of them end with
the pytest process, however that ends.

What must see the start of the interpreter itself (LD_PRELOAD, sitecustomize, another interpreter)
is started by ``subprocess``, and so is what is about starting.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import coatcheck
from tests.waiting import LIMIT_SECONDS

ROOT = Path(__file__).resolve().parents[1]
OURS = (str(ROOT / "src"), str(ROOT))
"""What the template has on its path: a process with another PYTHONPATH is not forked from it."""
REQUEST_BYTES_MAX = 2**20
BESIDES = (
    "anyio._backends._asyncio",
    "encodings.idna",
    "pydantic.types",
    "rich._emoji_codes",
    "tests.e2e.faults.process",
)
"""What the template imports besides all of Coatcheck: what commands import as they run."""


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether a process with this environment may be forked: nothing in it concerns the start."""
    path = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    return "LD_PRELOAD" not in environment and set(path) <= set(OURS)


class ForkedProcess:
    """``python -m module``, forked. Otherwise as ``subprocess.Popen``, whose words it uses."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        cwd: Path | str,
        env: Mapping[str, str],
        stdin: IO[Any] | int | None = None,
        stdout: IO[Any] | int,
        stderr: IO[Any] | int,
        start_new_session: bool = False,
    ) -> None:
        assert can_fork(env)
        self.args = [module, *arguments]
        self.returncode: int | None = None
        request = {
            "module": module,
            "arguments": list(arguments),
            "cwd": str(cwd),
            "environment": dict(env),
            "new_session": start_new_session,
        }
        self._status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as closing:
            closing.enter_context(theirs)
            nothing = closing.enter_context(Path(os.devnull).open("rb"))
            given = nothing if stdin is None else stdin
            files = [f if isinstance(f, int) else f.fileno() for f in (given, stdout, stderr)]
            socket.send_fds(_template(), [json.dumps(request).encode()], [*files, theirs.fileno()])
        self.pid = int(self._status.recv(64))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.wait()

    def poll(self) -> int | None:
        """Its exit status, if it has ended; negative for the signal that ended it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._status.recv(64))
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_forked(
    module: str, *arguments: str, cwd: Path, env: Mapping[str, str], given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a module to its end, with ``given`` as its standard input. What it prints is text."""
    with (
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        stdin.write(given.encode())
        stdin.seek(0)
        process = ForkedProcess(
            module, arguments, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr
        )
        try:
            status = process.wait(LIMIT_SECONDS)
        finally:
            process.kill()
        for file in (stdout, stderr):
            file.seek(0)
        return subprocess.CompletedProcess(
            process.args, status, stdout.read().decode(), stderr.read().decode()
        )


@cache
def _template() -> socket.socket:
    """The way to this process's template, which ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("COATCHECK_")}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked_process", str(theirs.fileno())],
            cwd=ROOT,
            env=inherited | {"PYTHONPATH": os.pathsep.join(OURS)},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # a Ctrl-C ends the tests first
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# What runs in the template


class _Forks:
    """The processes that were forked, and whom to tell how each ended."""

    def __init__(self) -> None:
        self._tell: dict[int, socket.socket] = {}

    def add(self, pid: int, status: socket.socket) -> None:
        self._tell[pid] = status
        status.send(str(pid).encode())

    def reap(self) -> None:
        for pid in list(self._tell):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with self._tell.pop(pid) as told, contextlib.suppress(BrokenPipeError):
                    told.send(str(os.waitstatus_to_exitcode(status)).encode())

    def kill(self) -> None:
        for pid in self._tell:
            os.kill(pid, signal.SIGKILL)

    def forget(self) -> None:
        """In a fork: they are the template's."""
        for status in self._tell.values():
            status.close()


def _fork_on_request(control: socket.socket) -> dict[str, Any] | None:
    """Fork for every request. Returns the request in the fork, and None when no more can come."""
    forks = _Forks()
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            forks.reap()
        if control not in ready:
            continue
        message, files, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 4)
        if not message:
            forks.kill()
            return None
        *standard, status = files
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, file in enumerate(standard):
                os.dup2(file, number)
            for file in files:
                os.close(file)
            for each in (control, woken, wake):
                each.close()
            forks.forget()
            request: dict[str, Any] = json.loads(message)
            return request
        forks.add(pid, socket.socket(fileno=status))
        for file in standard:
            os.close(file)


def _become(request: dict[str, Any]) -> None:
    """Be what ``python -m`` would have started: its session, files, folder, environment, path."""
    if request["new_session"]:
        os.setsid()
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # noqa: SIM115
        2, "w", buffering=1, errors="backslashreplace", closefd=False
    )
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    own = [each for each in request["environment"].get("PYTHONPATH", "").split(os.pathsep) if each]
    installed = [each for each in sys.path if each not in OURS]
    sys.path[:] = [request["cwd"], *own, *installed]
    sys.argv[1:] = request["arguments"]
    if "COATCHECK_CRASH_AT" in os.environ:
        importlib.reload(importlib.import_module("coatcheck.crash"))  # it reads it as it is loaded


def _main(control: socket.socket) -> None:
    for module in pkgutil.walk_packages(coatcheck.__path__, "coatcheck."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in BESIDES:
        importlib.import_module(name)
    # Commands look at their terminal and at COLUMNS as they are loaded: each loads its own.
    for name in [name for name in sys.modules if f"{name}.".startswith("coatcheck.cli.")]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()  # so that a fork's collections do not copy what it shares
    request = _fork_on_request(control)
    if request is not None:
        _become(request)
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
