"""Calls that never end: upstreams that accept a connection and send nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import httpx2

from chaos.abuse.attack import Attack, Figures, at_least, at_most
from chaos.abuse.target import ATTACKER, BYSTANDER, Target

_LANES: Final = ("urgent", "standard", "bulk")
_CALLS_IN_A_LANE: Final = 40
"""More than a worker has slots for handlers in any lane."""
_TIMEOUT_SECONDS: Final = 3_600
_ARRIVAL_SECONDS_MAX: Final = 15.0
_BYSTANDER_SECONDS_MAX: Final = 20


class HangingUpstream:
    """Reads requests and never answers. ``held`` is the number of its connections."""

    def __init__(self) -> None:
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def held(self) -> int:
        return len(self._writers)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._hold, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with suppress(ConnectionError):
                while await reader.read(65_536):
                    pass
        finally:
            self._writers.discard(writer)
            writer.close()


async def _hanging_upstreams(target: Target) -> Figures:
    upstream = HangingUpstream()
    async with upstream.listening(), target.client() as client:
        await _register(client, upstream.port)
        submitted = await asyncio.gather(
            *(_submit(client, lane) for lane in _LANES for _ in range(_CALLS_IN_A_LANE))
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(_ARRIVAL_SECONDS_MAX):
                while upstream.held < len(submitted):
                    await asyncio.sleep(0.05)
        async with target.client(BYSTANDER) as other:
            ended = await asyncio.gather(
                *(_echo(other, lane) for lane in _LANES for _ in range(10 if target.short else 40))
            )
        return {
            "calls_submitted": len(submitted),
            "calls_under_way": upstream.held,
            "handler_jobs": len(ended),
            "handler_jobs_completed": sum(ended),
            "handler_jobs_not_completed": len(ended) - sum(ended),
        }


async def _register(client: httpx2.AsyncClient, port: int) -> None:
    endpoint: dict[str, Any] = {
        "method": "POST",
        "path": "/hang",
        "timeout": _TIMEOUT_SECONDS,
        "target": {"type": "http", "url": f"http://127.0.0.1:{port}"},
    }
    path = f"/api/v1/orgs/{ATTACKER}/workspaces/default/hosted-services/hanging"
    document = {"versions": {"1": {"endpoints": [endpoint]}}}
    (await client.put(path, json=document)).raise_for_status()


async def _submit(client: httpx2.AsyncClient, lane: str) -> str:
    path = f"/api/v1/orgs/{ATTACKER}/services/hanging/async/hang"
    answer = await client.post(path, json={}, headers={"X-HSL-Lane": lane})
    return str(answer.raise_for_status().json()["job_id"])


async def _echo(client: httpx2.AsyncClient, lane: str) -> bool:
    """Whether a handler's job completed."""
    service = f"/api/v1/orgs/{BYSTANDER}/services/abuse"
    answer = await client.post(
        f"{service}/async/echo", json={"word": "still here"}, headers={"X-HSL-Lane": lane}
    )
    job = answer.raise_for_status().json()["job_id"]
    seen = await client.get(f"{service}/jobs/{job}?wait={_BYSTANDER_SECONDS_MAX}", timeout=60)
    return bool(seen.raise_for_status().json()["status"] == "completed")


def _complaints(figures: Figures) -> list[str]:
    return [
        *at_least(figures, "calls_under_way", 1),
        *at_least(figures, "handler_jobs_completed", 1),
        *at_most(figures, "handler_jobs_not_completed", 0),
        *at_most(figures, "rss_growth_mib", 64),
    ]


ATTACKS: Final = (
    Attack(
        name="hanging-upstreams",
        row=3,
        title="120 calls of an upstream that never answers, 40 in each lane",
        run=_hanging_upstreams,
        complaints=_complaints,
        victim="worker",
    ),
)
