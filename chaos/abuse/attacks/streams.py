"""Connections that stay open: streams of one key, and idle anonymous connections."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

import httpx2

from chaos.abuse.attack import Attack, Figures, at_least, at_most
from chaos.abuse.target import ATTACKER, BYSTANDER, Target
from coatcheck.domain.tenants import Scope

_STREAMS: Final = 10_000
_STREAMS_SHORT: Final = 700
_FILES_KEPT: Final = 500
"""Files of this process reserved for other purposes than attacking connections."""
_OPENED_AT_A_TIME: Final = 100
_HELD_SECONDS: Final = 10.0
_ANSWER_SECONDS_MAX: Final = 30.0
_PROBES: Final = 20
_ADDRESS: Final = "127.0.0.2"
"""The address of the anonymous clients, different from the bystander's."""

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _streams_of_one_key(target: Target) -> Figures:
    """Follow one job with a read-only key on as many connections as possible."""
    key = await target.new_key(ATTACKER, frozenset({Scope.READ}))
    async with target.client() as client:
        path = f"/api/v1/orgs/{ATTACKER}/services/abuse/async/hang"
        job = (await client.post(path, json={"seconds": 600})).headers["location"]
    request = f"GET {job}/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n"
    async with _opened(target, request.encode()) as answers:
        figures = await _looked_around(target)
    return {
        "streams": answers["200"],
        "refused_429": answers["429"],
        "refused_503": answers["503"],
        "cut_off": answers["cut off"],
        **figures,
    }


async def _strangers_who_stay(target: Target) -> Figures:
    """Send one request without a credential on as many connections as possible, and stay."""
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with _opened(target, request, local=(_ADDRESS, 0)) as answers:
        figures = await _looked_around(target)
    refused = answers["429"] + answers["503"] + answers["cut off"]
    return {"taken": answers.total() - refused, "refused": refused, **figures}


@contextlib.asynccontextmanager
async def _opened(
    target: Target, request: bytes, local: tuple[str, int] | None = None
) -> AsyncIterator[Counter[str]]:
    """Send a request on many connections, and hold them; returns the first lines of the answers."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = _STREAMS_SHORT if target.short else min(_STREAMS, soft - _FILES_KEPT)
    if target.short and local is not None:
        count *= 2
    turns = asyncio.Semaphore(_OPENED_AT_A_TIME)
    open_now: list[_Connection] = []
    answers: Counter[str] = Counter()

    async def one() -> None:
        async with turns:
            answers[await _asked(target, request, local, open_now)] += 1

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(one())
        yield answers
    finally:
        for _, writer in open_now:
            writer.transport.abort()


async def _asked(
    target: Target, request: bytes, local: tuple[str, int] | None, open_now: list[_Connection]
) -> str:
    """The status of the answer. The connection stays open."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", target.port, local_addr=local
            )
            open_now.append((reader, writer))
            writer.write(request)
            line = await reader.readline()
    except (OSError, TimeoutError):
        return "cut off"
    return line.split(b" ")[1].decode() if line.startswith(b"HTTP/") else "cut off"


async def _looked_around(target: Target) -> Figures:
    """The answers for others meanwhile, on new connections: health checks, and another tenant."""
    until = time.monotonic() + (0.0 if target.short else _HELD_SECONDS)
    health = reads = tried = 0
    while tried < _PROBES or time.monotonic() < until:
        async with target.client(BYSTANDER) as client:
            with contextlib.suppress(httpx2.HTTPError, OSError):
                health += (await client.get("/healthz")).is_success
                reads += (await client.get(f"/api/v1/orgs/{BYSTANDER}/jobs?limit=1")).is_success
        tried += 1
        if tried >= _PROBES:
            await asyncio.sleep(0.1)
    return {"health_failed": tried - health, "reads_failed": tried - reads}


def _streams_complaints(figures: Figures) -> list[str]:
    return [
        *at_most(figures, "streams", 500),
        *at_least(figures, "refused_429", 200),
        *at_most(figures, "refused_503", 0),
        *_common(figures),
    ]


def _strangers_complaints(figures: Figures) -> list[str]:
    return [
        *at_most(figures, "taken", 1_000),
        *at_least(figures, "refused", 200),
        *_common(figures),
    ]


def _common(figures: Figures) -> list[str]:
    return [
        *at_most(figures, "health_failed", 0),
        *at_most(figures, "reads_failed", 0),
        *at_most(figures, "rss_growth_mib", 128),
    ]


ATTACKS: Final = (
    Attack(
        name="streams",
        row=4,
        title="10,000 event streams of one job, by one key that may only read",
        run=_streams_of_one_key,
        complaints=_streams_complaints,
    ),
    Attack(
        name="strangers",
        row=4,
        title="10,000 connections of one address that stay, without a credential",
        run=_strangers_who_stay,
        complaints=_strangers_complaints,
        settings={"PROXIES": "none"},
    ),
)
