"""The service that most tests of batches hand their tasks to."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from coatcheck import FailJob, Job, Service
from coatcheck.domain.lanes import Lane

sums = Service("sums")
sums_v2 = Service("sums", version=2)


class Gates:
    """Where handlers wait for a test, which runs in the same process. Names are a test's own."""

    def __init__(self) -> None:
        self.begun: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.opened: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


gates = Gates()
broken: set[int] = set()
"""What /add refuses, until a test mends it."""
BREAKS = 999_999_999
"""What /add breaks on, and would be tried again with."""


@sums.post("/add", retries=0)
async def add(a: int, b: int = 0) -> dict[str, int]:
    if a == BREAKS:
        raise ArithmeticError("too large")
    if a in broken:
        raise FailJob(f"{a} is broken", code="broken")
    if a < 0:
        raise FailJob("a is negative", code="negative")
    return {"sum": a + b}


@sums_v2.post("/add")
async def add_better(a: int) -> dict[str, int]:
    return {"sum": a, "version": 2}


@sums.post("/wait", lane=Lane.BULK, retries=0)
async def wait(job: Job, gate: str) -> str:
    """Ends when the test opens its gate, or the job is cancelled."""
    gates.begun[gate].set()
    ways = {
        asyncio.create_task(gates.opened[gate].wait()),
        asyncio.create_task(job.wait_cancelled()),
    }
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    for way in ways:
        way.cancel()
    job.check_cancelled()
    return gate


@sums.post("/long")
async def long(characters: int) -> str:
    return "x" * characters


@sums.post("/leave")
async def leave(job: Job, text: str) -> int:
    """Leaves a file."""
    await job.attach("note.txt", text.encode(), media_type="text/plain")
    return len(text)


@sums.post("/greet/{name}")
async def greet(name: str) -> str:
    return f"hello {name}"


@sums.get("/both")
async def get_both() -> str:
    return "GET"


@sums.put("/both")
async def put_both() -> str:
    return "PUT"


@sums.post("/now", async_eligible=False)
async def now() -> str:
    return "now"


@sums.post("/tokens", auth="service_token")
async def tokens() -> str:
    return "for services"
