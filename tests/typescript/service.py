"""The service that the TypeScript client's live tests talk to: ``clients/typescript/test/live``."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from coatcheck import Job, Service

DRAWING = b"<svg/>" * 100_000
CHUNKS = ["one", {"two": [2]}, b"\x00\xff", "four", "five", 6]


def desk() -> Service:
    """A service whose handlers wait for each other where a test says so."""
    service = Service("desk")
    released: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
    started: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    @service.post("/count", retries=0)
    async def count(text: str) -> dict[str, int]:
        return {"words": len(text.split())}

    @service.put("/items/{item}")
    async def put(item: int, colour: str) -> str:
        return f"{item} is {colour}"

    @service.post("/hold/{name}", sync_timeout=0.1)
    async def hold(name: str) -> str:
        started[name].set()
        await released[name].wait()
        return "at last"

    @service.post("/seen/{name}")
    async def seen(name: str) -> None:
        await started[name].wait()

    @service.post("/release/{name}")
    async def release(name: str) -> None:
        released[name].set()

    @service.post("/until-cancelled")
    async def until_cancelled(job: Job) -> None:
        await job.wait_cancelled()
        job.check_cancelled()

    @service.post("/fail")
    async def fail(job: Job) -> None:
        job.fail("there is no such mailbox", code="no_mailbox")

    @service.post("/draw")
    async def draw(job: Job) -> None:
        await job.attach("plan.svg", DRAWING, media_type="image/svg+xml")
        await job.attach("empty", b"")

    @service.post("/tell")
    async def tell(job: Job) -> int:
        await job.progress(0.5, "half way")
        await job.log("counted", words=3)
        for chunk in CHUNKS:
            await job.emit(chunk)
        return len(CHUNKS)

    return service
