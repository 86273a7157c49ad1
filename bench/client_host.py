"""The program around a Python contender's client: reads requests, answers with figures.

One JSON object per line in (`{"op": ..., ...}`), one per line out (`{"ok": ...}` or
`{"error": ...}`). `node/host.mjs` has the same protocol. Run as
`python -m bench.client_host MODULE`, where MODULE has a `Client` class.
"""

import asyncio
import dataclasses
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, BinaryIO

import uvloop

from bench.contenders.contract import ClaimCostClient, Client, WaitingClient


class Host:
    """Maps each request to a call on the client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def answer(self, request: dict[str, Any]) -> object:
        client = self._client
        match request.pop("op"):
            case "open":
                await client.open(**request)
            case "install":
                await client.install()
            case "enqueue_concurrently":
                return dataclasses.asdict(await client.enqueue_concurrently(**request))
            case "enqueue_bulk":
                return dataclasses.asdict(await client.enqueue_bulk(**request))
            case "unfinished":
                return await client.unfinished()
            case "kept":
                return dataclasses.asdict(await client.kept())
            case "paced_submits":
                return await paced(self._submit_once, **request)
            case "paced_waits":
                return await paced(self._submit_and_wait, **request)
            case "write_history":
                await self._claim_cost_client().write_history(**request)
            case "claim_cost":
                return await self._claim_cost_client().claim_cost()
            case "close":
                await client.close()
            case unknown:
                raise ValueError(f"unknown request {unknown!r}")
        return None

    def _claim_cost_client(self) -> ClaimCostClient:
        if not isinstance(self._client, ClaimCostClient):
            raise TypeError("this contender's client has no claim_cost()")
        return self._client

    async def _submit_once(self, number: int) -> None:
        await self._client.submit(number)

    async def _submit_and_wait(self, number: int) -> None:
        if not isinstance(self._client, WaitingClient):
            raise TypeError("this contender's client has no wait()")
        await self._client.wait(await self._client.submit(number))


async def paced(
    call: Callable[[int], Awaitable[None]], first: int, count: int, interval_seconds: float
) -> list[list[int]]:
    """Makes `count` calls on a fixed timetable; returns [number, begun ns, returned ns] of each.

    Each call is a task of its own: a slow one does not delay the next, so no wait is hidden.
    """
    times: list[list[int]] = []

    async def timed(number: int) -> None:
        begun = time.monotonic_ns()
        await call(number)
        times.append([number, begun, time.monotonic_ns()])

    begin = time.monotonic()
    async with asyncio.TaskGroup() as calls:
        for index in range(count):
            await asyncio.sleep(begin + index * interval_seconds - time.monotonic())
            calls.create_task(timed(first + index))
    return times


async def serve(host: Host, requests: BinaryIO, answers: BinaryIO) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), requests)
    while line := await reader.readline():
        try:
            reply: dict[str, object] = {"ok": await host.answer(json.loads(line))}
        except Exception:  # noqa: BLE001 -- whatever failed is the bench's to report
            reply = {"error": traceback.format_exc()}
        answers.write(json.dumps(reply).encode() + b"\n")
        answers.flush()


def main() -> None:
    # A contender may print: only this program's answers may reach the pipe.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    module = importlib.import_module(sys.argv[1])
    uvloop.run(serve(Host(module.Client()), sys.stdin.buffer, answers))


if __name__ == "__main__":
    main()
