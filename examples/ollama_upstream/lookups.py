"""The routes that respond at once: models, loaded models and embeddings."""

from __future__ import annotations

import time

from examples.ollama_upstream import requests
from examples.ollama_upstream.calls import Call
from examples.ollama_upstream.catalogue import EMBEDDING_LENGTH, Model, Shelf
from examples.ollama_upstream.durations import keep_alive_seconds
from examples.ollama_upstream.failures import Refused
from examples.ollama_upstream.memory import Memory
from examples.ollama_upstream.sabotage import Saboteur
from examples.ollama_upstream.shapes import Stopwatch
from examples.ollama_upstream.vectors import embedding, unit
from examples.ollama_upstream.wording import tokens

VERSION = "0.12.6"


class Lookups:
    def __init__(self, shelf: Shelf, memory: Memory, saboteur: Saboteur) -> None:
        self._shelf = shelf
        self._memory = memory
        self._saboteur = saboteur

    async def tags(self, call: Call) -> None:
        await self._answer(call, {"models": [model.tag for model in self._shelf]})

    async def ps(self, call: Call) -> None:
        await self._answer(call, {"models": self._memory.listed()})

    async def version(self, call: Call) -> None:
        await self._answer(call, {"version": VERSION})

    async def show(self, call: Call) -> None:
        name = call.body.get("model") or call.body.get("name")
        if not isinstance(name, str) or not name:
            raise Refused(400, "model is required")
        await self._answer(call, self._shelf.find(name).shown)

    async def embed(self, call: Call) -> None:
        name = requests.model_of(call.body, "EmbedRequest")
        texts = requests.texts_to_embed(call.body)
        model, watch = self._shelf.find_to_load(name), Stopwatch()
        async with self._memory.model(model, keep_alive_seconds(call.body.get("keep_alive"))):
            watch.loaded = time.monotonic()
            length = min(call.body.get("dimensions") or EMBEDDING_LENGTH, EMBEDDING_LENGTH)
            figures: dict[str, object] = {
                "total_duration": watch.nanoseconds(),
                "load_duration": watch.load_nanoseconds(),
                "prompt_eval_count": sum(len(tokens(text)) for text in texts),
            }
            vectors = [unit(_vector(model, text)[:length]) for text in texts]
            await self._answer(call, {"model": name, "embeddings": vectors} | figures)

    async def embeddings(self, call: Call) -> None:
        """The older route: one text, and a vector of any length."""
        name = requests.model_of(call.body, "EmbeddingRequest")
        if not name:
            raise Refused(400, "model is required")
        model, text = self._shelf.find_to_load(name), call.body.get("prompt") or ""
        async with self._memory.model(model, keep_alive_seconds(call.body.get("keep_alive"))):
            await self._answer(call, {"embedding": _vector(model, text) if text else []})

    async def _answer(self, call: Call, value: dict[str, object]) -> None:
        if await self._saboteur.strike(call):
            await call.exchange.answer(value)


def _vector(model: Model, text: str) -> list[float]:
    return embedding(model.name, text, EMBEDDING_LENGTH)
