"""Submits at a fixed rate, independent of responses, and times each from its due time."""

import asyncio
import json
import time
from dataclasses import dataclass, field

from bench.http.connection import Connection
from bench.http.servers import ControlPlane
from bench.payload import payload_bytes

CONNECTIONS = 128
ACCEPTED = 202
OK = 200


class NotServedError(RuntimeError):
    """The server gave an unexpected answer."""


@dataclass
class Timed:
    """Milliseconds of every submit and of every status read."""

    submits: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)


async def submit_and_read(plane: ControlPlane, per_second: int, seconds: float) -> Timed:
    """One submit every 1/per_second, each followed by one read of its job."""
    idle: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
    for _ in range(CONNECTIONS):
        idle.put_nowait(await Connection.open(plane.port))
    timed = Timed()
    headers = {"Authorization": f"Bearer {plane.key}", "Content-Type": "application/json"}

    async def one(number: int, due: float) -> None:
        connection = await idle.get()
        answer = await connection.request("POST", plane.submit_path, headers, payload_bytes(number))
        timed.submits.append((time.perf_counter() - due) * 1_000)
        if answer.status != ACCEPTED:
            raise NotServedError(f"a submit was answered {answer.status}: {answer.body[:200]!r}")
        begun = time.perf_counter()
        poll_url = json.loads(answer.body)["poll_url"]
        answer = await connection.request("GET", poll_url, headers)
        timed.reads.append((time.perf_counter() - begun) * 1_000)
        if answer.status != OK:
            raise NotServedError(f"a read was answered {answer.status}: {answer.body[:200]!r}")
        idle.put_nowait(connection)

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(per_second * seconds)):
            due = begun + number / per_second
            ahead = due - time.perf_counter()
            if ahead > 0:
                await asyncio.sleep(ahead)
            group.create_task(one(number, due))
    while not idle.empty():
        await idle.get_nowait().close()
    return timed
