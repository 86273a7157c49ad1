"""A conversation in Ollama's words, put together from what OpenAI's clients send."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from coatcheck.domain.errors import InvalidBody
from coatcheck.http.json_bodies import read_json
from coatcheck.products.llm.fetched_images import IMAGE_URLS_MAX, is_image_url
from coatcheck.products.llm.openai.fields import wrong

_DATA_URI: Final = re.compile(r"data:[^,]*;base64,", re.IGNORECASE)
_ASSISTANT: Final = "assistant"


class Conversation:
    """Messages, added one after the other. Raises InvalidParameter for what cannot be said."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.image_urls: dict[str, str] = {}
        """Images that have to be fetched, by the fields that they came in."""
        self._names: dict[str, str] = {}
        """Of the functions that were called, by the ids of the calls."""

    def say(
        self, role: str, text: str, images: Sequence[str] = (), *, thinking: str | None = None
    ) -> dict[str, Any]:
        """Add a message. ``images`` are those that ``image`` gave."""
        message: dict[str, Any] = {
            "role": "system" if role == "developer" else role,
            "content": text,
        }
        if images:
            message["images"] = list(images)
        if thinking:
            message["thinking"] = thinking
        self.messages.append(message)
        return message

    def call(self, call_id: str, name: str, arguments: str, place: str) -> None:
        """Add a call to what the model said last. ``place`` is the field of ``arguments``."""
        encoded = arguments.encode() or b"{}"
        try:
            is_object = isinstance(read_json(encoded), dict)
        except InvalidBody:
            is_object = False
        if not is_object:
            raise wrong(place, "must be a JSON object, as text")
        if not self.messages or self.messages[-1]["role"] != _ASSISTANT:
            self.say(_ASSISTANT, "")
        call: dict[str, Any] = {"function": {"name": name, "arguments": msgspec.Raw(encoded)}}
        calls = self.messages[-1].setdefault("tool_calls", [])
        calls.append({"id": call_id} | call if call_id else call)
        self._names[call_id] = name

    def answers_call(self, message: dict[str, Any], call_id: str) -> None:
        """Say which call a message of a tool answers."""
        message["tool_call_id"] = call_id
        if call_id in self._names:
            message["tool_name"] = self._names[call_id]

    def image(self, url: str, place: str) -> str:
        """An image for a message: its base64, or the address that a worker fetches it from."""
        found = _DATA_URI.match(url)
        if found is not None and not is_image_url(url[found.end() :]):
            return url[found.end() :]
        # An address within a data URI would be fetched, uncounted, beside one that is not.
        if not is_image_url(url):
            raise wrong(
                place, "must be an http(s) URL, or hold the image: data:image/png;base64,..."
            )
        if len(self.image_urls) >= IMAGE_URLS_MAX:
            raise wrong(
                place, f"is one URL too many: {IMAGE_URLS_MAX} images of a request are fetched"
            )
        self.image_urls[place] = url
        return url

    def instruct(self, text: str) -> None:
        """Tell the model something before all else. Many know of one such message only."""
        if self.messages and self.messages[0]["role"] == "system":
            first = self.messages[0]
            first["content"] = "\n\n".join(part for part in (first["content"], text) if part)
        else:
            self.messages.insert(0, {"role": "system", "content": text})
