"""The service of these tests' workers. Every execution appends a line to a file.

A line is ``<job id> <attempt> <process id>``, appended before anything else is done.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from coatcheck import Job, Service

yard = Service("yard")

_LOOK_SECONDS = 0.02


def _note(job: Job, log: str) -> None:
    with Path(log).open("a") as lines:  # one short write with O_APPEND: lines never mix
        lines.write(f"{job.id} {job.attempt} {os.getpid()}\n")


@yard.post("/note")
async def note(job: Job, log: str, padding: str = "") -> dict[str, int]:
    """Ends at once."""
    _note(job, log)
    return {"attempt": job.attempt, "characters": len(padding)}


@yard.post("/wait")
async def wait(job: Job, log: str, gate: str) -> dict[str, int]:
    """Ends when the file ``gate`` exists."""
    _note(job, log)
    while not Path(gate).exists():
        await asyncio.sleep(_LOOK_SECONDS)
    return {"attempt": job.attempt}


@yard.post("/fail-first")
async def fail_first(job: Job, log: str) -> dict[str, int]:
    """Its first attempt fails."""
    _note(job, log)
    if job.attempt == 1:
        job.retry("the first attempt fails", after=0.0)
    return {"attempt": job.attempt}


@yard.post("/attach", retries=20)
async def attach(job: Job, log: str, size: int) -> dict[str, int]:
    """Attaches a file of ``size`` bytes. Its job survives a temporary outage of the blob store."""
    _note(job, log)
    await job.attach("made.bin", os.urandom(size))
    return {"attempt": job.attempt}
