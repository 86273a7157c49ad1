"""The service that ``coatcheck up`` runs when it is given none."""

from __future__ import annotations

import asyncio

from coatcheck.job import Job
from coatcheck.service import Service

demo = Service("demo")


@demo.post("/echo")
async def echo(message: str) -> dict[str, str]:
    """Gives the message back."""
    return {"message": message}


@demo.post("/slow", timeout=600)
async def slow(job: Job, seconds: float = 5.0, steps: int = 10) -> dict[str, float]:
    """Takes its time, and says how far it is."""
    for step in range(steps):
        await job.progress(step / steps, f"step {step + 1} of {steps}")
        await asyncio.sleep(seconds / steps)
    await job.progress(1.0, "done")
    return {"seconds": seconds}
