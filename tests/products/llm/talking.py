"""A deployment with chats: an Ollama-shaped upstream, a worker that asks it, and clients.

The clients are the real packages, over a socket, given nothing but a base URL and a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import ollama
import openai

from coatcheck.products.llm.executor import LlmExecutor
from coatcheck.settings.targets import LlmTarget
from coatcheck.worker.worker import Worker
from examples.ollama_upstream import OllamaUpstream
from tests.deployment import Deployment, Server, bearer

Answer = TypeVar("Answer")

TOKEN = "the-targets-own-token"
MODEL = "llama3.2"


class Talking:
    """One upstream, and a deployment that sends chats to it."""

    def __init__(
        self, deployment: Deployment, upstream: OllamaUpstream, executor: LlmExecutor
    ) -> None:
        self.deployment = deployment
        self.upstream = upstream
        self._executor = executor

    async def hire(self) -> Worker:
        """A worker that asks the upstream."""
        return await self.deployment.run_worker(self._executor.worker())

    def url(self, replica: Server | None = None) -> str:
        return str((replica or self.deployment.server).http.base_url).rstrip("/")

    def ollama(self, key: str | None = None) -> ollama.AsyncClient:
        return ollama.AsyncClient(host=self.url(), headers=bearer(key or self.deployment.key))

    def openai(self, key: str | None = None, **options: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            base_url=f"{self.url()}/v1", api_key=key or self.deployment.key, **options
        )


@asynccontextmanager
async def talking(
    dsn: str,
    folder: Path,
    *,
    concurrency: int = 8,
    upstream: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Talking]:
    """A deployment with an upstream, fast unless ``upstream`` says otherwise, and its worker."""
    tuning: dict[str, Any] = {"tokens_per_second": 0, "max_loaded": 8, "parallel": 8}
    async with OllamaUpstream(**(tuning | {"token": TOKEN} | (upstream or {}))) as target:
        targets = (LlmTarget("here", target.url, TOKEN, concurrency),)
        async with (
            Deployment(dsn, folder, **({"llm_targets": targets} | settings)) as deployment,
            LlmExecutor(deployment.settings, deployment.database) as executor,
        ):
            opened = Talking(deployment, target, executor)
            await opened.hire()
            yield opened


async def aside(call: Callable[[], Answer]) -> Answer:
    """Run what blocks, such as the packages' synchronous clients, beside the server it calls."""
    return await asyncio.to_thread(call)
