"""What the processes of these tests run. Every execution leaves a line in a file.

The test counts executions from outside: a line is ``<job id> <attempt> <process id>``, appended
before anything else is done. A handler that waits does so for a file, which the test makes.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from coatcheck import Job, Service

lab = Service("lab")

NAME_VARIABLE = "LAB_WORKER_NAME"
"""What a worker process of these tests is called, if it is to have a name."""

_LOOK_SECONDS = 0.02


def _note(job: Job, log: str) -> None:
    with Path(log).open("a") as lines:  # one short write with O_APPEND: lines never mix
        lines.write(f"{job.id} {job.attempt} {os.getpid()}\n")


@lab.post("/note")
async def note(job: Job, log: str) -> dict[str, int]:
    """Ends at once."""
    _note(job, log)
    return {"attempt": job.attempt}


@lab.post("/limited", concurrency=1)
async def limited(job: Job, log: str) -> dict[str, int]:
    """Ends at once; one at a time, over all workers."""
    _note(job, log)
    return {"attempt": job.attempt}


@lab.post("/wait")
async def wait(job: Job, log: str, gate: str) -> dict[str, int]:
    """Ends when the file ``gate`` exists."""
    _note(job, log)
    while not Path(gate).exists():
        await asyncio.sleep(_LOOK_SECONDS)
    return {"attempt": job.attempt}


@lab.post("/wait-first")
async def wait_first(job: Job, log: str, gate: str) -> dict[str, int]:
    """Its first execution waits for the gate; any later one ends at once."""
    first = not Path(log).exists() or job.id not in Path(log).read_text()
    _note(job, log)
    while first and not Path(gate).exists():
        await asyncio.sleep(_LOOK_SECONDS)
    return {"attempt": job.attempt}


@lab.post("/wait-apart", isolated=True)
def wait_apart(job: Job, log: str, gate: str) -> dict[str, int]:
    """As ``wait-first``, in a process of its own."""
    first = not Path(log).exists() or job.id not in Path(log).read_text()
    _note(job, log)
    while first and not Path(gate).exists():
        time.sleep(_LOOK_SECONDS)
    return {"attempt": job.attempt}


@lab.post("/block")
async def block(job: Job, log: str, gate: str) -> dict[str, int]:
    """A handler that should have been a plain function: its first execution stops the whole loop
    until the gate exists, heartbeats included, and then returns without a pause."""
    first = not Path(log).exists() or job.id not in Path(log).read_text()
    _note(job, log)
    while first and not Path(gate).exists():
        time.sleep(_LOOK_SECONDS)
    return {"attempt": job.attempt}


@lab.post("/report")
async def report(job: Job, log: str) -> dict[str, int]:
    """Reports in every way there is."""
    _note(job, log)
    await job.progress(0.5, "half")
    await job.log("a line")
    await job.attach("made.txt", b"made by the job")
    return {"attempt": job.attempt}


@lab.post("/fail-first")
async def fail_first(job: Job, log: str) -> dict[str, int]:
    """Its first attempt fails."""
    _note(job, log)
    if job.attempt == 1:
        job.retry("the first attempt fails", after=0.0)
    return {"attempt": job.attempt}


@lab.post("/heed")
async def heed(job: Job, log: str) -> None:
    """Stops when it is asked to."""
    _note(job, log)
    await job.wait_cancelled()
    job.check_cancelled()
