"""What the jobs of these tests do: quickly, wrongly, or until they are let go."""

from __future__ import annotations

import asyncio
from pathlib import Path

from coatcheck import Job, Service

desk = Service("desk")
FOLDER = Path()
"""Where gates are opened; set by the fixture that starts the worker."""


@desk.post("/echo/{name}")
async def echo(name: str, message: str = "") -> dict[str, str]:
    return {"name": name, "message": message}


@desk.post("/break", retries=0)
async def break_(job: Job) -> None:
    await job.log("about to break", level="warning", tool="hammer")
    if (FOLDER / "mended").exists():
        return
    raise ValueError("\x1b[31mbroken\n[bold]markup[/bold]")


@desk.put("/hold", retries=0)
async def hold(job: Job, gate: str) -> str:
    await job.progress(0.25, "waiting to be let go")
    await job.log(f"waiting for {gate}")
    while not (FOLDER / gate).exists():
        job.check_cancelled()
        await asyncio.sleep(0.02)
    return "let go"
