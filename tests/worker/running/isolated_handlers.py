"""Handlers that run in a process of their own, which has to be able to import them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from coatcheck import Job, Service

apart = Service("apart")

_LOOK_SECONDS = 0.02


@apart.post("/double", isolated=True)
def double(number: int) -> dict[str, int]:
    return {"doubled": 2 * number, "pid": os.getpid()}


@apart.post("/wait", isolated=True)
def wait(job: Job, pid_file: str) -> None:
    """Runs until it is killed, deaf to the flag. Says who it is."""
    _say_who(pid_file)
    while True:
        time.sleep(_LOOK_SECONDS)


@apart.post("/refuse", isolated=True)
def refuse(job: Job, pid_file: str) -> None:
    """As ``wait``, deaf to SIGTERM as well."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _say_who(pid_file)
    while True:
        time.sleep(_LOOK_SECONDS)


@apart.post("/heed", isolated=True)
def heed(job: Job, pid_file: str) -> None:
    """Stops by itself when asked."""
    _say_who(pid_file)
    while True:
        job.check_cancelled()
        time.sleep(_LOOK_SECONDS)


@apart.post("/report", isolated=True)
def report(job: Job) -> str:
    job.progress(0.25, "a quarter")
    job.log("from the process", kind="isolated")
    job.emit("chunk")
    job.attach("made.txt", b"made apart", media_type="text/plain")
    return "reported"


@apart.post("/flood", isolated=True)
def flood(job: Job, chunks: int, size: int) -> None:
    for _ in range(chunks):
        job.emit("x" * size)


@apart.post("/attach", isolated=True)
def attach(job: Job) -> str:
    job.attach("made.txt", b"bytes")
    return "attached"


def _say_who(pid_file: str) -> None:
    partial = Path(pid_file + ".partial")
    partial.write_text(str(os.getpid()))
    partial.rename(pid_file)
