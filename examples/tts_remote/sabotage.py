"""Injects the planned faults into requests."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any

from examples.tts_remote.exchange import PIECE_BYTES, Answer, Exchange
from examples.tts_remote.failures import Refused, Stopped
from examples.tts_remote.faults import Fault

_GARBAGE = b"<html><h1>502 Bad Gateway</h1></html>\n"
_SILENCE = bytes(PIECE_BYTES)
_RATE_HERTZ = 22_050
_WAV_HEADER_BYTES = 44
_WAV_SIZE_MAX = 0xFFFF_FFFF


class Saboteur:
    """``go_away`` ends the whole remote."""

    def __init__(self, go_away: Callable[[Fault], Awaitable[None]]) -> None:
        self._go_away = go_away

    async def before(self, exchange: Exchange, fault: Fault, cleared: asyncio.Event) -> bool:
        """Apply the fault before the work. False if the fault was the answer."""
        match fault.kind:
            case "error":
                raise Refused(fault.status, fault.message, tuple(fault.headers.items()))
            case "slow":
                await _while_there(exchange, asyncio.sleep(fault.seconds or 0.0))
            case "hang":
                await _while_there(exchange, cleared.wait())
            case "garbage":
                length = ("content-length", str(len(_GARBAGE)))
                await exchange.stream(_once(_GARBAGE), "text/html", headers=(length,))
                return False
            case "cut" if exchange.path != "/job-result":
                raise Stopped
            case "go_away":
                await self._go_away(fault)
                raise Stopped
        return True

    async def answer(self, exchange: Exchange, fault: Fault, answer: Answer) -> None:
        """Answer, with the fault, after the work."""
        match fault.kind:
            case "lost_answer":
                raise Stopped
            case "cut":
                await exchange.answer(answer, cut_after=fault.after_bytes)
            case "huge":
                size = fault.size_bytes
                length = (("content-length", str(size)),) if fault.with_length else ()
                await exchange.stream(_silence(size), "audio/wav", headers=length)
            case _:
                await exchange.answer(answer)


async def _while_there(exchange: Exchange, waiting: Coroutine[Any, Any, Any]) -> None:
    """Wait for a coroutine, or stop when the caller disconnects."""
    awaited = asyncio.create_task(waiting)
    gone = asyncio.create_task(exchange.gone())
    try:
        await asyncio.wait({awaited, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not awaited.done():
            raise Stopped
    finally:
        awaited.cancel()
        gone.cancel()
        await asyncio.gather(awaited, gone, return_exceptions=True)


async def _once(data: bytes) -> AsyncGenerator[bytes, None]:
    yield data


async def _silence(size: int) -> AsyncGenerator[bytes, None]:
    """A WAV of ``size`` bytes, generated piece by piece."""
    header = _wav_header(size)[:size]
    yield header
    left = size - len(header)
    while left > 0:
        yield _SILENCE[:left]
        left -= PIECE_BYTES


def _wav_header(size: int) -> bytes:
    samples = min(max(size - _WAV_HEADER_BYTES, 0), _WAV_SIZE_MAX - 36)
    return (
        struct.pack("<4sI4s", b"RIFF", samples + 36, b"WAVE")
        + struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, _RATE_HERTZ, 2 * _RATE_HERTZ, 2, 16)
        + struct.pack("<4sI", b"data", samples)
    )
