"""Sends an answer at its pace, streamed or whole, with its planned faults."""

from __future__ import annotations

import asyncio
import base64
import itertools
import time
from collections.abc import Iterator

from examples.ollama_upstream import shapes, wording
from examples.ollama_upstream.calls import Call
from examples.ollama_upstream.pictures import noise
from examples.ollama_upstream.requests import Asked
from examples.ollama_upstream.sabotage import Saboteur
from examples.ollama_upstream.scripts import Piece, Script
from examples.ollama_upstream.shapes import Kind, Stopwatch
from examples.ollama_upstream.tuning import Tuning


class Speaker:
    def __init__(self, tuning: Tuning, saboteur: Saboteur) -> None:
        self._tuning = tuning
        self._saboteur = saboteur

    async def say(
        self, call: Call, kind: Kind, asked: Asked, script: Script, watch: Stopwatch
    ) -> None:
        """An answer in words, token by token."""
        exchange, began = call.exchange, self._beginning()
        for number, said in enumerate(_pieces(call, script)):
            await self._wait(began, number)
            if number == 0:
                watch.first_token = time.monotonic()
            if not await self._goes_on(call, number):
                return
            if asked.stream:
                await exchange.line(shapes.piece(kind, asked, said))
            call.request.tokens_sent += 1
        if not await self._goes_on(call, len(script.pieces)):
            return
        if asked.stream:
            await exchange.line(shapes.last(kind, asked, script, watch))
            await exchange.end()
        else:
            await exchange.answer(shapes.whole(kind, asked, script, watch))

    async def draw(self, call: Call, asked: Asked, watch: Stopwatch) -> None:
        """A picture, step by step."""
        exchange, began = call.exchange, self._beginning()
        for step in range(1, asked.steps + 1):
            await self._wait(began, step)
            if not await self._goes_on(call, step - 1):
                return
            if asked.stream:
                await exchange.line(shapes.drawing(asked.model, step, asked.steps))
            call.request.tokens_sent += 1
        picture = noise(asked.width, asked.height, wording.dice(asked, "picture"))
        answer = shapes.drawn(asked, base64.b64encode(picture).decode(), watch)
        if asked.stream:
            await exchange.line(answer)
            await exchange.end()
        else:
            await exchange.answer(answer)

    async def _goes_on(self, call: Call, tokens_said: int) -> bool:
        fault = call.fault
        if fault is None or fault.kind == "endless" or fault.after_tokens != tokens_said:
            return True
        return await self._saboteur.strike(call)

    def _beginning(self) -> float:
        return asyncio.get_running_loop().time() + self._tuning.prompt_seconds

    async def _wait(self, began: float, number: int) -> None:
        """Wait until token ``number`` is due: by the clock, so that small delays do not add up."""
        rate = self._tuning.tokens_per_second
        due = began + (number / rate if rate else 0.0)
        await asyncio.sleep(due - asyncio.get_running_loop().time())


def _pieces(call: Call, script: Script) -> Iterator[Piece]:
    yield from script.pieces
    if call.fault is not None and call.fault.kind == "endless":
        yield from itertools.repeat(Piece("content", " more"))
