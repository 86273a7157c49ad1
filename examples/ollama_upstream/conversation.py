"""``/api/chat`` and ``/api/generate``."""

from __future__ import annotations

import time
from typing import assert_never

from examples.ollama_upstream import requests, shapes
from examples.ollama_upstream.calls import Call
from examples.ollama_upstream.catalogue import Model, Shelf
from examples.ollama_upstream.failures import Refused, lacks
from examples.ollama_upstream.memory import Memory
from examples.ollama_upstream.requests import Asked
from examples.ollama_upstream.sabotage import Saboteur
from examples.ollama_upstream.scripts import script
from examples.ollama_upstream.shapes import Kind, Stopwatch
from examples.ollama_upstream.speech import Speaker
from examples.ollama_upstream.tuning import Tuning


class Conversation:
    def __init__(self, shelf: Shelf, memory: Memory, tuning: Tuning, saboteur: Saboteur) -> None:
        self._shelf = shelf
        self._memory = memory
        self._tuning = tuning
        self._speaker = Speaker(tuning, saboteur)

    async def chat(self, call: Call) -> None:
        asked = requests.chat(call.body)
        if not asked.model:
            raise Refused(400, "model is required")
        await self._converse(call, "chat", asked, bool(call.body.get("messages")))

    async def generate(self, call: Call) -> None:
        asked = requests.generate(call.body)
        await self._converse(call, "generate", asked, bool(asked.prompt))

    async def _converse(self, call: Call, kind: Kind, asked: Asked, prompted: bool) -> None:
        if not self._tuning.keeps_to_schemas:
            asked.format = None
        if not self._tuning.tells_logprobs:
            asked.top_logprobs = None
        model, watch = self._shelf.find(asked.model), Stopwatch()
        if not prompted and asked.keep_seconds == 0:
            self._memory.unload(model)
            await call.exchange.answer(shapes.nothing_said(kind, asked.model, "unload"))
            return
        _check_ability(kind, asked, model)
        async with self._memory.model(model, asked.keep_seconds) as runner:
            watch.loaded = time.monotonic()
            if not prompted:
                await call.exchange.answer(shapes.nothing_said(kind, asked.model, "load"))
                return
            if asked.images and not model.can("vision", "image"):
                raise Refused(500, "this model is missing data required for image input")
            async with self._memory.place(runner):
                if model.can("image"):
                    await self._speaker.draw(call, asked, watch)
                else:
                    thinks = model.can("thinking") and asked.think is not False
                    answer = script(asked, thinks=thinks, length=self._tuning.answer_tokens)
                    await self._speaker.say(call, kind, asked, answer, watch)


def _check_ability(kind: Kind, asked: Asked, model: Model) -> None:
    if asked.think and not model.can("thinking"):
        raise lacks(asked.model, "thinking")
    match kind:
        case "chat":
            able = model.can("completion")
        case "generate":
            able = model.can("completion", "image")
        case _:
            assert_never(kind)
    if not able:
        raise lacks(asked.model, kind)
    if asked.tools and not model.can("tools"):
        # Here Ollama names the model in full, and without quotes.
        raise Refused(400, f"registry.ollama.ai/library/{model.name} does not support tools")
