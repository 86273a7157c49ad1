from __future__ import annotations

from collections.abc import AsyncIterator

import ollama
import pytest

from examples.ollama_upstream import OllamaUpstream


@pytest.fixture
async def upstream() -> AsyncIterator[OllamaUpstream]:
    """All models, as fast as it can."""
    async with OllamaUpstream(tokens_per_second=0) as running:
        yield running


@pytest.fixture
def client(upstream: OllamaUpstream) -> ollama.AsyncClient:
    return ollama.AsyncClient(upstream.url, trust_env=False)
