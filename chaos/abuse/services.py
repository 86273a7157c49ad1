"""The service of the attacked worker: endpoints for the innocent tenant and the attacker."""

from __future__ import annotations

import asyncio
import time

from coatcheck import Job, Service

abuse = Service("abuse")


@abuse.post("/echo")
async def echo(word: str) -> dict[str, str]:
    """Ends at once."""
    return {"word": word}


@abuse.post("/large", keep_completed=3600)
async def large(size: int) -> str:
    """Returns a result of this size."""
    return "x" * size


@abuse.post("/hang", timeout=600)
async def hang(job: Job, seconds: float) -> None:
    """Holds its slot for this time."""
    await asyncio.sleep(seconds)


@abuse.post("/hang-plain", timeout=0.2, retries=0)
def hang_plain(seconds: float) -> None:
    """Holds its thread for this time, despite its timeout."""
    time.sleep(seconds)


@abuse.post("/echo-plain")
def echo_plain(word: str) -> dict[str, str]:
    """Ends at once, in a thread."""
    return {"word": word}


@abuse.post("/chunks", timeout=600)
async def chunks(job: Job, chunks: int, size: int) -> None:
    """Emits chunks of a size as fast as possible."""
    chunk = "x" * size
    for _ in range(chunks):
        await job.emit(chunk)
