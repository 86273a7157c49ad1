"""The service whose jobs the tests of the console look after."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from coatcheck import FailJob, Job, RetryLater, Service

chores = Service("chores")


class Doors:
    """Where handlers wait for a test, which runs in the same process. Names are a test's own."""

    def __init__(self) -> None:
        self.entered: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.opened: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


doors = Doors()
mended: set[str] = set()
"""What no longer fails."""


@chores.post("/sweep", retries=0)
async def sweep(job: Job, room: str, code: str = "no_broom") -> dict[str, str]:
    """Fails until it is mended."""
    await job.log(f"sweeping {room}")
    if room not in mended:
        raise FailJob(f"nothing to sweep the {room} with", code=code)
    return {"swept": room}


@chores.post("/dust", retries=1)
async def dust(room: str) -> None:
    raise RetryLater(f"the {room} is too dusty", after=0)


@chores.post("/wait")
async def wait(job: Job, door: str) -> str:
    doors.entered[door].set()
    opened = asyncio.create_task(doors.opened[door].wait())
    cancelled = asyncio.create_task(job.wait_cancelled())
    try:
        await asyncio.wait({opened, cancelled}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        opened.cancel()
        cancelled.cancel()
    job.check_cancelled()
    return door


@chores.post("/forget", retries=0, keep_input=False)
async def forget(secret: str) -> None:
    raise FailJob(f"{len(secret)} letters that nobody keeps", code="forgotten")


@chores.post("/say")
async def say(words: str) -> str:
    return words


@chores.post("/idle", lane="bulk")
async def idle() -> None:
    """Of a lane that no worker of the tests serves: it waits."""
