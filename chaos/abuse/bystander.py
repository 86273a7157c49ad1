"""An innocent tenant that measures its latency: ``python -m chaos.abuse.bystander URL KEY ORG``.

It runs in its own process, so that a busy attacker does not make it look slow. It answers each line
on stdin with a line of measurements since the last one. It ends with its stdin.

It tries three things all the time, each separately: ``/healthz`` on a new connection, as a load
balancer does; a read with a key on a connection that stays; and a call that runs a job and waits
for its result.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx2

from chaos.member import ROOT

EVERY_SECONDS: Final = 0.05
GIVEN_UP_SECONDS: Final = 30.0
KINDS: Final = ("health", "read", "call")


@dataclass
class Latencies:
    """One kind of request: milliseconds of successful ones, and the number of others."""

    milliseconds: list[float] = field(default_factory=list)
    failed: int = 0

    def summary(self) -> dict[str, Any]:
        values = sorted(self.milliseconds)
        return {
            "answered": len(values),
            "failed": self.failed,
            "p50": _quantile(values, 0.5),
            "p99": _quantile(values, 0.99),
            "worst": _quantile(values, 1.0),
        }


def _quantile(values: list[float], share: float) -> float | None:
    if not values:
        return None
    return round(values[max(0, math.ceil(share * len(values)) - 1)], 1)


async def _main(url: str, key: str, org: str) -> None:
    seen = {kind: Latencies() for kind in KINDS}
    headers = {"Authorization": f"Bearer {key}"}

    async def health() -> bool:
        async with httpx2.AsyncClient(trust_env=False, timeout=GIVEN_UP_SECONDS) as client:
            return (await client.get(f"{url}/healthz")).is_success

    async def read() -> bool:
        answer = await staying.get(f"{url}/api/v1/orgs/{org}/jobs?limit=1")
        return answer.is_success

    async def call() -> bool:
        answer = await staying.post(
            f"{url}/api/v1/orgs/{org}/services/abuse/echo", json={"word": "still here"}
        )
        return answer.status_code == httpx2.codes.OK

    async with AsyncExitStack() as closing:
        staying = await closing.enter_async_context(
            httpx2.AsyncClient(headers=headers, trust_env=False, timeout=GIVEN_UP_SECONDS)
        )
        tries = {"health": health, "read": read, "call": call}
        tasks = [asyncio.create_task(_again(tries[kind], seen[kind])) for kind in KINDS]
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while await reader.readline():
            print(json.dumps({kind: seen[kind].summary() for kind in KINDS}), flush=True)
            for kind in KINDS:
                seen[kind].milliseconds, seen[kind].failed = [], 0
        for task in tasks:
            task.cancel()


async def _again(attempt: Callable[[], Awaitable[bool]], seen: Latencies) -> None:
    while True:
        began = time.monotonic()
        try:
            answered = await attempt()
        except (httpx2.HTTPError, OSError):
            answered = False
        if answered:
            seen.milliseconds.append((time.monotonic() - began) * 1000)
        else:
            seen.failed += 1
        await asyncio.sleep(EVERY_SECONDS)


class Bystander:
    """A context manager in the attacker's process: starts the bystander and reads its results."""

    def __init__(self, url: str, key: str, org: str) -> None:
        self._arguments = (url, key, org)
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "chaos.abuse.bystander",
            *self._arguments,
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        await self.figures()  # it is ready
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def figures(self) -> dict[str, dict[str, Any]]:
        """Its measurements since the last call, by kind of request."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the bystander has ended")
        answer: dict[str, dict[str, Any]] = json.loads(line)
        return answer


if __name__ == "__main__":
    assert Path.cwd() == ROOT
    asyncio.run(_main(*sys.argv[1:]))
