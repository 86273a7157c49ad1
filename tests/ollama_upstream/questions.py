"""What the tests ask."""

from __future__ import annotations

from typing import Any

import ollama

CHATTY = "llama3.2"
WHY = "Why is the sky blue?"


def user(text: str = WHY) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def streamed(client: ollama.AsyncClient, **asked: Any) -> list[ollama.ChatResponse]:
    """All objects of a streamed chat."""
    asked = {"model": CHATTY, "messages": user()} | asked
    return [each async for each in await client.chat(**asked, stream=True)]


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of the next days",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
