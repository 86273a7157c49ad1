"""Handlers for the tests of the isolated executor. Their processes import this module by name.

A handler that is about to be ended from outside first emits what the test needs to know, as JSON;
the test goes on when that has arrived.
"""

from __future__ import annotations

import asyncio
import ctypes
import io
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, NoReturn

import pydantic

from coatcheck.domain.errors import TargetUnreachable
from coatcheck.job import Job
from coatcheck.service import Service
from coatcheck.worker.executors import wire
from coatcheck.worker.executors.child import Channel

service = Service("isolated")

_PTRACE_ATTACH = 16
SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


class Model(pydantic.BaseModel):
    number: int


def wait_for_ever() -> NoReturn:
    while True:
        signal.pause()


# Ends of the ordinary kinds


@service.post("/echo", isolated=True)
def echo(content: str, model: Model | None = None) -> dict[str, Any]:
    return {"content": content, "model": model, "process": os.getpid()}


@service.post("/echo-async", isolated=True)
async def echo_async(job: Job, content: str) -> dict[str, Any]:
    await job.progress(0.5, "halfway")
    return {"content": content, "id": job.id}


@service.post("/surroundings", isolated=True)
def surroundings(job: Job) -> dict[str, Any]:
    assert job.temp_dir is not None
    with tempfile.NamedTemporaryFile() as file:
        temporary = file.name
    return {
        "environment": dict(os.environ),
        "folder": str(job.temp_dir),
        "working_folder": str(Path.cwd()),
        "mode": job.temp_dir.stat().st_mode & 0o777,
        "temporary": temporary,
        "session": os.getsid(0),
        "group": os.getpgid(0),
        "process": os.getpid(),
        "parent": os.getppid(),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "descriptors": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir()),
        "job": [job.id, job.org, job.endpoint, job.lane, job.attempt, job.request_id],
    }


@service.post("/report", isolated=True)
def report(job: Job, outside: str) -> None:
    assert job.temp_dir is not None
    job.progress(0.25, "begun")
    job.log("a line", level="warning", pages=[1, 2])
    job.emit("text")
    job.emit(b"\xff\x00")
    job.emit({"number": 1})
    job.attach("bytes", b"one", media_type="text/plain")
    inside = job.temp_dir / "inside.txt"
    inside.write_bytes(b"two")
    job.attach("inside", inside)
    job.attach("outside", Path(outside))
    job.attach("file", io.BytesIO(b"four"))
    left = [path.name for path in job.temp_dir.iterdir()]
    assert left == ["inside.txt"], left


@service.post("/report-from-threads", isolated=True)
def report_from_threads(job: Job) -> None:
    def work(number: int) -> None:
        for step in range(20):
            job.log(f"{number} {step}")
            job.attach(f"{number} {step}", b"%d" % step)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@service.post("/look-into-the-worker", isolated=True)
def look_into_the_worker() -> dict[str, str]:
    """What can be read of the process that started this one, in several ways."""
    worker = f"/proc/{os.getppid()}"
    found = {}
    for name in ("environ", "mem", "maps", "fd/0", "cwd"):
        try:
            if name in ("fd/0", "cwd"):
                found[name] = str(Path(worker, name).readlink())
            else:
                with Path(worker, name).open("rb") as file:
                    found[name] = repr(file.read(100))
        except OSError as error:
            found[name] = type(error).__name__
    # A program that root executes has root's capabilities, unless they are out of reach.
    program = subprocess.run(["cat", f"{worker}/environ"], capture_output=True, check=False)
    found["program"] = repr(program.stdout)
    attached = ctypes.CDLL(None).ptrace(_PTRACE_ATTACH, os.getppid(), 0, 0)
    found["ptrace"] = str(attached)
    return found


@service.post("/become-a-link", isolated=True)
def become_a_link(job: Job, victim: str) -> None:
    """Leaves links where its folders were."""
    assert job.temp_dir is not None
    inner = job.temp_dir / "inner"
    inner.symlink_to(victim)
    job.temp_dir.rename(job.temp_dir.with_name("moved"))
    job.temp_dir.symlink_to(victim)


@service.post("/attach-by-its-own-words", isolated=True)
def attach_by_its_own_words(job: Job, path: str, link: str | None = None) -> None:
    """Sends the worker a path that the usual way would not have let through."""
    if link is not None:
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).symlink_to(link)
    to_worker = socket.socket(fileno=os.dup(int(sys.argv[1])))
    Channel(to_worker).attach(wire.AttachedFile("stolen", "text/plain", path))


@service.post("/flood", isolated=True)
def flood(job: Job, lines: int) -> None:
    job.emit({"process": os.getpid()})
    for number in range(lines):
        job.log(f"{number} {'x' * 1000}")


@service.post("/print", isolated=True)
def talk() -> None:
    print("on stdout")
    print("on stderr", file=sys.stderr)
    subprocess.run(["sh", "-c", "echo from a program"], check=True)
    print("without an end", end="")


@service.post("/end", isolated=True)
def end(job: Job, how: str) -> object:
    match how:
        case "fail":
            job.fail("no", code="refused")
        case "retry":
            job.retry("busy", after=5)
        case "unreachable":
            raise TargetUnreachable("away", after=2)
        case "raise":
            raise LookupError("where is it?")
        case "exit":
            sys.exit(3)
        case "opaque":
            return object()
        case "large":
            return "x" * (16 * 1024 * 1024 - 2)
        case "too large":
            return "x" * (16 * 1024 * 1024)
    raise AssertionError(how)


@service.post("/raise-secret", isolated=True)
def raise_secret(content: str) -> None:
    raise LookupError(content)


@service.post("/leave-threads", isolated=True)
def leave_threads() -> str:
    threading.Thread(target=threading.Event().wait).start()
    return "returned"


@service.post("/fork", isolated=True)
def fork() -> str:
    if os.fork() == 0:
        return "from the fork"
    os.wait()
    return "from the first"


# Deaths


@service.post("/wait", isolated=True)
def wait(job: Job) -> None:
    assert job.temp_dir is not None
    (job.temp_dir / "secret").write_text("customer data")
    job.emit({"process": os.getpid(), "folder": str(job.temp_dir)})
    wait_for_ever()


@service.post("/die", isolated=True)
def die(how: str) -> None:
    match how:
        case "exit":
            os._exit(7)
        case "crash":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case _:
            raise AssertionError(how)


@service.post("/family", isolated=True)
def family(job: Job, then: str) -> None:
    """Starts one process in its own group, and one that leaves it, and one that leaves by fork."""
    near = subprocess.Popen(SLEEPER)
    far = subprocess.Popen(SLEEPER, start_new_session=True)
    forked = os.fork()
    if forked == 0:
        os.setsid()
        wait_for_ever()  # holds the socket and the pipes open
    job.emit({"process": os.getpid(), "family": [near.pid, far.pid, forked]})
    if then == "wait":
        wait_for_ever()


# Limits


@service.post("/take-memory", isolated=True, memory_mb=256)
def take_memory(job: Job, megabytes: int) -> int:
    assert job.temp_dir is not None
    (job.temp_dir / "secret").write_text("customer data")
    return len(bytearray(megabytes * 1024 * 1024))


@service.post("/spin", isolated=True, cpu_seconds=1)
def spin(ignoring: bool) -> None:
    if ignoring:
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    while True:
        pass


# Cancellation


@service.post("/look", isolated=True)
def look(job: Job) -> None:
    job.emit({"process": os.getpid()})
    while not job.cancel_requested:
        threading.Event().wait(0.001)
    job.log("saw it")
    job.check_cancelled()


@service.post("/await-cancel", isolated=True)
async def await_cancel(job: Job) -> None:
    job.emit({"process": os.getpid()})
    await job.wait_cancelled()
    job.log("saw it")
    job.check_cancelled()


@service.post("/attach-and-await-cancel", isolated=True)
async def attach_and_await_cancel(job: Job) -> None:
    """The word to cancel arrives while an attachment is waited for, not while the loop listens."""
    job.emit({"process": os.getpid()})
    await job.attach("file", b"data")
    await job.wait_cancelled()
    job.log("saw it")
    job.check_cancelled()


@service.post("/finish-anyway", isolated=True)
def finish_anyway(job: Job) -> str:
    job.emit({"process": os.getpid()})
    while not job.cancel_requested:
        threading.Event().wait(0.001)
    return "done"


@service.post("/unwind", isolated=True)
def unwind(job: Job, witness: str) -> None:
    try:
        job.emit({"process": os.getpid()})
        wait_for_ever()
    finally:
        Path(witness).write_text("unwound")


@service.post("/unwind-async", isolated=True)
async def unwind_async(job: Job, witness: str) -> None:
    try:
        job.emit({"process": os.getpid()})
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        Path(witness).write_text("unwound")


@service.post("/resist", isolated=True)
def resist(job: Job) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    job.emit({"process": os.getpid()})
    wait_for_ever()


@service.post("/trace", isolated=True)
def trace() -> list[str | None]:
    """The trace that this process is a part of, as OpenTelemetry has it and as we do."""
    from opentelemetry.trace import get_current_span

    from coatcheck.telemetry import context

    about = get_current_span().get_span_context()
    return [f"{about.trace_id:032x}" if about.is_valid else None, context.traceparent.get()]
