"""A service whose jobs do what pages are to show: end well, fail, wait, report, leave files."""

from __future__ import annotations

import asyncio
import base64
import io
import wave
from collections import defaultdict

from coatcheck import FailJob, Job, Service

errands = Service("errands")

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Gates:
    """Where handlers wait for a test, which runs in the same process. Names are a test's own."""

    def __init__(self) -> None:
        self.begun: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.opened: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


gates = Gates()


@errands.post("/greet")
async def greet(name: str = "you") -> str:
    return f"hello, {name}"


@errands.post("/break", retries=0)
async def break_down(message: str = "It broke.", code: str = "broken") -> None:
    raise FailJob(message, code=code)


@errands.post("/wait", retries=0)
async def wait(job: Job, gate: str, then: str | None = None) -> str:
    """Says that it is halfway, and ends when the test opens its gates, or the job is cancelled."""
    await job.progress(0.5, "halfway there")
    await job.log(f"waiting at {gate}", gate=gate)
    gates.begun[gate].set()
    for each in (gate, then):
        if each is not None:
            await through(job, each)
    return gate


async def through(job: Job, gate: str) -> None:
    ways = {
        asyncio.create_task(gates.opened[gate].wait()),
        asyncio.create_task(job.wait_cancelled()),
    }
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    for way in ways:
        way.cancel()
    job.check_cancelled()
    await job.log(f"through {gate}")


@errands.post("/queue", retries=0)
async def queue(gate: str) -> str:
    """One of these is done at a time, if a test says so."""
    gates.begun[gate].set()
    await gates.opened[gate].wait()
    return gate


@errands.post("/leave")
async def leave(job: Job, name: str = "note.html") -> int:
    """Leaves a picture, a sound, and a page that must never run."""
    await job.attach("dot.png", PIXEL, media_type="image/png")
    await job.attach("beep.wav", silence(), media_type="audio/wav")
    await job.attach(name, b"<script>alert(1)</script>", media_type="text/html")
    return 3


@errands.post("/script")
async def script(job: Job) -> None:
    """Leaves a script and a style that no page of ours may load."""
    await job.attach("pwn.js", b"window.pwned = 1;", media_type="text/javascript")
    await job.attach("pwn.css", b"body { display: none; }", media_type="text/css")


@errands.post("/echo", retries=0)
async def echo(job: Job, text: str, fails: bool = False) -> dict[str, str]:
    """Says what it is told everywhere where one can say something."""
    await job.log(text, said=text)
    await job.progress(0.9, text)
    if fails:
        raise FailJob(text, code="echoed")
    return {text: text}


@errands.post("/count", retries=0)
async def count(number: int, gate: str | None = None) -> int:
    if gate is not None:
        await gates.opened[gate].wait()
    if number < 0:
        raise FailJob("It is negative.", code="negative")
    return number


def silence() -> bytes:
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8_000)
        file.writeframes(b"\0\0" * 800)
    return sound.getvalue()
