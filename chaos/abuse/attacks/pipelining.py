"""Pipelined requests without waiting for responses."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Final

from chaos.abuse.attack import Attack, Figures, at_most
from chaos.abuse.target import MIB, Target

_REQUEST: Final = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
_SECONDS_MAX: Final = 20.0
_SECONDS_MIN: Final = 5.0
"""How long disconnected attackers reconnect, so that the bystander can measure."""


async def _one_connection(target: Target) -> Figures:
    size = (2 if target.short else 10) * MIB
    return {"sent_bytes": await _floods(target, size)}


async def _many_connections(target: Target) -> Figures:
    connections, size = (8, MIB) if target.short else (40, 2 * MIB)
    sent = await asyncio.gather(*(_floods(target, size) for _ in range(connections)))
    return {"sent_bytes": sum(sent)}


async def _floods(target: Target, size: int) -> int:
    until = time.monotonic() + (0 if target.short else _SECONDS_MIN)
    sent = await _flood(target, size)
    while time.monotonic() < until:
        sent += await _flood(target, size)
    return sent


async def _flood(target: Target, size: int) -> int:
    """Send this many bytes of requests while they are accepted; returns the number sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    block, sent = _REQUEST * 1_000, 0
    draining = asyncio.create_task(_discard(reader))
    try:
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_SECONDS_MAX):
                while sent < size:
                    writer.write(block)
                    await writer.drain()
                    sent += len(block)
                await draining
    finally:
        draining.cancel()
        writer.transport.abort()
    return sent


async def _discard(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while await reader.read(65_536):
            pass


def _complaints(figures: Figures) -> list[str]:
    return at_most(figures, "rss_growth_mib", 32)


ATTACKS: Final = (
    Attack(
        name="pipelining",
        row=1,
        title="10 MiB of GET / on one connection, without a credential",
        run=_one_connection,
        complaints=_complaints,
    ),
    Attack(
        name="pipelining-crowd",
        row=1,
        title="2 MiB of GET / on each of 40 connections, without a credential",
        run=_many_connections,
        complaints=_complaints,
    ),
)
