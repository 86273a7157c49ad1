"""The programs in ``examples/llm`` run with the real `ollama` and `openai` packages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from examples.ollama_upstream import OllamaUpstream
from tests.deployment import Deployment
from tests.e2e.programs import output_of
from tests.markdown import REPOSITORY

EXAMPLES = REPOSITORY / "examples" / "llm"
WHY = "You said: Why is the sky blue?"
NIGHT = "You said: And at night?"
CALL = "get_weather({'city': 'Toronto', 'days': 3})"
NOT_FOUND = "model 'no-such-model' not found"
TOLD = "The tool says: Toronto: 11 degrees for 3 days"


@pytest.fixture
async def env(dsn: str, tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """What such a program is told: where Coatcheck is, and its key."""
    async with (
        OllamaUpstream(tokens_per_second=0) as upstream,
        Deployment(dsn, tmp_path, llm_url=upstream.url) as deployment,
    ):
        await deployment.start_llm_worker()
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("COATCHECK_")}
        yield inherited | {
            "COATCHECK_URL": str(deployment.http.base_url),
            "COATCHECK_API_KEY": deployment.key,
            "NO_PROXY": "127.0.0.1",
        }


async def sections(name: str, env: dict[str, str]) -> dict[str, list[str]]:
    """What the program prints, by its headings."""
    printed = await asyncio.to_thread(output_of, EXAMPLES / name, cwd=REPOSITORY, env=env)
    parts = [part.splitlines() for part in printed.split("-- ")[1:]]
    return {heading: lines for heading, *lines in parts}


async def test_the_ollama_package_works_with_another_address(env: dict[str, str]) -> None:
    said = await sections("with_ollama.py", env)
    assert said["models"][0].startswith("llama3.2:latest, ")
    assert said["chat"][0].startswith(WHY)
    assert said["chat"][1].startswith("stop, ")
    assert said["streaming chat"][0].startswith(NIGHT)
    assert said["tools"][0] == CALL
    assert said["tools"][1].startswith(TOLD)
    assert said["JSON of a schema"] == ['{"name": "Ada", "age": 36}']
    assert said["embeddings"] == ["64 numbers"]
    missing, unable = said["errors"]
    assert missing.startswith("404: ")
    assert missing.endswith(NOT_FOUND)
    assert unable.startswith("400: ")
    assert unable.endswith('"llama3.2" does not support thinking')


async def test_the_openai_package_works_with_another_address(env: dict[str, str]) -> None:
    said = await sections("with_openai.py", env)
    assert said["models"][0].startswith("llama3.2:latest, ")
    assert said["chat"][0].startswith(WHY)
    assert said["chat"][1].startswith("stop, ")
    assert said["chat"][2] == "it was a job"
    assert said["streaming chat"][0].startswith(NIGHT)
    assert said["streaming chat"][1].endswith(" tokens")
    assert said["tools"][0] == f"tool_calls: {CALL}"
    assert said["tools"][1].startswith(TOLD)
    missing, refused, unknown = said["errors"]
    assert missing.startswith("NotFoundError 404: ")
    assert missing.endswith(NOT_FOUND)
    assert refused.startswith("BadRequestError 400: ")
    assert unknown == "AuthenticationError 401"
