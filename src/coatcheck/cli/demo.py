"""The demo service that ``coatcheck up`` runs when no service is given."""

from __future__ import annotations

import asyncio

from coatcheck.job import Job
from coatcheck.service import Service

demo = Service("demo")


@demo.post("/echo")
async def echo(message: str) -> dict[str, str]:
    """Returns the message."""
    return {"message": message}


@demo.post("/slow", timeout=600)
async def slow(job: Job, seconds: float = 5.0, steps: int = 10) -> dict[str, float]:
    """Runs for some seconds and reports its progress."""
    for step in range(steps):
        await job.progress(step / steps, f"step {step + 1} of {steps}")
        await asyncio.sleep(seconds / steps)
    await job.progress(1.0, "done")
    return {"seconds": seconds}
