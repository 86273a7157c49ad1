"""The bench's handle on a contender's client process: one method per request."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from bench.contenders.contract import Contender, Enqueued, Kept
from bench.processes import Child, ChildEndedError, Processes

REQUEST_SECONDS_MAX = 120.0


class ClientFailedError(RuntimeError):
    """The client answered with an error, or not at all in time."""


@dataclass(frozen=True)
class Call:
    """One paced call: its job's number and when it began and returned (CLOCK_MONOTONIC)."""

    number: int
    begun_ns: int
    returned_ns: int


class ClientProcess:
    """Sends requests to `bench.client_host` or `node/host.mjs` and reads their answers."""

    def __init__(self, contender: Contender, child: Child, processes: Processes) -> None:
        self.contender = contender
        self._child = child
        self._processes = processes

    @classmethod
    async def start(cls, contender: Contender, processes: Processes) -> "ClientProcess":
        child = await processes.start(
            f"{contender.name}-client", contender.client_command, contender.environment, piped=True
        )
        return cls(contender, child, processes)

    async def open(self, address: str) -> None:
        await self._request("open", address=address)

    async def install(self) -> None:
        await self._request("install")

    async def enqueue_concurrently(self, in_flight: int, seconds: float) -> Enqueued:
        answer = await self._request("enqueue_concurrently", in_flight=in_flight, seconds=seconds)
        return Enqueued(**answer)

    async def enqueue_bulk(self, jobs: int, seconds_max: float) -> Enqueued:
        return Enqueued(**await self._request("enqueue_bulk", jobs=jobs, seconds_max=seconds_max))

    async def unfinished(self) -> int:
        return int(await self._request("unfinished"))

    async def kept(self) -> Kept:
        return Kept(**await self._request("kept"))

    async def paced_submits(self, first: int, count: int, interval_seconds: float) -> list[Call]:
        return await self._paced("paced_submits", first, count, interval_seconds)

    async def paced_waits(self, first: int, count: int, interval_seconds: float) -> list[Call]:
        return await self._paced("paced_waits", first, count, interval_seconds)

    async def write_history(self, finished_rows: int) -> None:
        await self._request("write_history", finished_rows=finished_rows)

    async def claim_cost(self) -> float:
        return float(await self._request("claim_cost"))

    async def close(self) -> None:
        await self._request("close")

    async def stop(self) -> None:
        await self._processes.stop(self._child)

    async def _paced(
        self, operation: str, first: int, count: int, interval_seconds: float
    ) -> list[Call]:
        answer = await self._request(
            operation, first=first, count=count, interval_seconds=interval_seconds
        )
        return [Call(*times) for times in answer]

    async def _request(self, operation: str, **arguments: object) -> Any:
        stdin, stdout = self._child.process.stdin, self._child.process.stdout
        assert stdin is not None
        assert stdout is not None
        self._child.raise_if_ended()
        stdin.write(json.dumps({"op": operation, **arguments}).encode() + b"\n")
        await stdin.drain()
        try:
            line = await asyncio.wait_for(stdout.readline(), REQUEST_SECONDS_MAX)
        except TimeoutError:
            raise ClientFailedError(
                f"{self._child.name} did not answer {operation!r} in {REQUEST_SECONDS_MAX:.0f} s; "
                f"its log ends with:\n{self._child.log_tail()}"
            ) from None
        if not line:
            await self._child.process.wait()
            raise ChildEndedError(self._child)
        reply = json.loads(line)
        if "error" in reply:
            raise ClientFailedError(
                f"{self._child.name} failed at {operation!r}:\n{reply['error']}"
            )
        return reply["ok"]
