"""The service that most gateway tests call."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from coatcheck import FailJob, Job, RetryLater, Service

docs = Service("docs")
docs_v2 = Service("docs", version=2)
letters = Service("letters")


class Gates:
    """Where handlers wait for a test, which runs in the same process. Names are a test's own."""

    def __init__(self) -> None:
        self.begun: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.opened: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


gates = Gates()


@docs.post("/analyze")
async def analyze(content: str, analysis_type: str = "entities") -> dict[str, object]:
    return {"result": {analysis_type: content.split()}, "confidence": 0.95}


@docs_v2.post("/analyze")
async def analyze_better(content: str) -> dict[str, object]:
    return {"version": 2, "words": len(content.split())}


@docs.post("/process")
async def process(
    priority: str = "low", data: str = "", batch_id: str | None = None
) -> dict[str, object]:
    return {"priority": priority, "data": data, "batch_id": batch_id}


@docs.put("/items/{item}")
async def put_item(item: int, status: str = "new") -> dict[str, object]:
    return {"item": item, "status": status}


@docs.get("/items/{item}")
async def get_item(item: int, deep: bool = False) -> dict[str, object]:
    return {"item": item, "deep": deep}


@docs.get("/files/{name}")
async def get_file(name: str) -> str:
    return name


@docs.get("/search")
async def search(
    text: str = "", most: int | None = None, score: float = 0.5, exact: bool = False
) -> dict[str, object]:
    return {"text": text, "most": most, "score": score, "exact": exact}


@docs.post("/echo/{label}")
async def labelled_echo(label: str, value: Any = None) -> Any:
    return [label, value]


@docs.post("/echo")
async def echo(value: Any = None) -> Any:
    return value


@docs.post("/talk")
async def talk(job: Job, lines: int = 3) -> str:
    for number in range(lines):
        await job.log(f"line {number}")
        await job.emit(f"chunk {number}")
        await job.progress((number + 1) / lines, f"{number + 1} of {lines}")
    return "said"


@docs.post("/chunks")
async def chunks(job: Job) -> None:
    await job.emit("two\nlines")
    await job.emit({"token": "a", "n": 1.0})
    await job.emit(b"\x00\xff")
    await job.log("beware", level="warning", page=3)


@docs.post("/recite")
async def recite(job: Job, gate: str, lines: int = 3) -> None:
    """Says some lines, waits until the test opens the gate, and says as many again."""
    for number in range(lines):
        await job.emit(number)
    gates.begun[gate].set()
    await gates.opened[gate].wait()
    for number in range(lines, 2 * lines):
        await job.emit(number)


@docs.post("/held", sync_timeout=0.3)
async def held(job: Job, gate: str) -> str:
    """Ends when the test opens the gate, or stops when it is cancelled."""
    gates.begun[gate].set()
    waits = [
        asyncio.ensure_future(gates.opened[gate].wait()),
        asyncio.ensure_future(job.wait_cancelled()),
    ]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    job.check_cancelled()
    return "let through"


@docs.post("/deaf")
async def deaf(gate: str) -> str:
    """Ends when the test opens the gate, and does not look whether it is cancelled."""
    gates.begun[gate].set()
    await gates.opened[gate].wait()
    return "done all the same"


@docs.post("/advance")
async def advance(job: Job, gate: str) -> None:
    """Shows progress when the test opens the gate, and runs until it is cancelled."""
    gates.begun[gate].set()
    await gates.opened[gate].wait()
    await job.progress(0.5, "half of it")
    await job.wait_cancelled()
    job.check_cancelled()


@docs.post("/linger")
async def linger(job: Job, gate: str) -> None:
    """Shows progress when the test opens the gate, and once cancelled ends when it may."""
    gates.begun[gate].set()
    await gates.opened[gate].wait()
    await job.progress(0.5, "half of it")
    await job.wait_cancelled()
    await gates.opened[f"{gate}: end"].wait()
    job.check_cancelled()


@docs.post("/slow")
async def slow(job: Job) -> None:
    while True:
        job.check_cancelled()
        await asyncio.sleep(0.02)


@docs.post("/fail")
async def fail(reason: str = "because") -> None:
    raise FailJob(reason, code="asked_to_fail")


@docs.post("/flaky", retries=1)
async def flaky() -> None:
    raise RetryLater("not today", after=0)


@docs.post("/tired")
async def tired() -> None:
    raise RetryLater("not today either", after=0)


@docs.post("/late", timeout=0.05, retries=0)
async def late() -> None:
    await asyncio.Event().wait()


@docs.post("/sync-only", async_eligible=False)
async def sync_only() -> str:
    return "here"


@docs.post("/unhurried", lane="bulk")
async def unhurried() -> None:
    return None


@docs.post("/open", auth="none")
async def open_to_all(word: str = "hello") -> str:
    return word


@docs.post("/machines", auth="service_token")
async def machines() -> str:
    return "beep"


@letters.post("/write")
async def write(to: str = "you") -> str:
    return f"Dear {to}"
