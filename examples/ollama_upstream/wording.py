"""Generates answers from the prompt alone, so that they are always the same.

A text begins with the question, so that a reader sees which answer belongs to which question.
Values for a tool or a schema come from the question if it has any.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

from examples.ollama_upstream.requests import Asked

_WORDS: list[str] = re.findall(
    r"\w+",
    "light air water stone morning quiet river paper bridge letter garden winter copper engine "
    "signal harbour lantern meadow ticket window orbit pattern thread amber cloud door field "
    "glass honey island journey kernel ladder mirror number ocean pencil question road silver",
)
_TOKEN = re.compile(r"\s*(?:\w{1,6}|[^\w\s])", re.ASCII)
_SHORTEST, _LONGEST = 16, 47
_QUOTED_CHARACTERS = 80


def dice(asked: Asked, *more: str) -> Random:
    """A random generator, the same for the same prompt, model and seed."""
    said = "\0".join((asked.model, str(asked.options.get("seed", 0)), asked.prompt, *more))
    for image in asked.images:
        said += hashlib.sha256(image).hexdigest()
    return Random(hashlib.sha256(said.encode("utf-8", "surrogatepass")).digest())


def tokens(text: str) -> list[str]:
    """The text in pieces. Joined, they are the text."""
    pieces, rest = [], 0
    while rest < len(text):
        match = _TOKEN.match(text, rest)
        end = match.end() if match else rest + 1
        pieces.append(text[rest:end])
        rest = end
    return pieces


def prose(asked: Asked, length: int | None) -> list[str]:
    """An answer in words, of ``length`` tokens, or of a length that the prompt decides."""
    chance = dice(asked)
    length = chance.randint(_SHORTEST, _LONGEST) if length is None else length
    pieces = tokens(_opening(asked))
    while len(pieces) < length:
        sentence = [chance.choice(_WORDS) for _ in range(chance.randint(4, 9))]
        pieces += tokens(" " + " ".join(sentence).capitalize() + ".")
    return pieces[:length]


def _opening(asked: Asked) -> str:
    quoted = " ".join(asked.question.split())[:_QUOTED_CHARACTERS]
    if asked.images:
        shown = ", ".join(
            f"{len(image)} bytes {hashlib.sha256(image).hexdigest()[:8]}" for image in asked.images
        )
        return f"You showed me {shown} and asked: {quoted}"
    return f"The tool says: {quoted}" if asked.asker == "tool" else f"You said: {quoted}"


def thoughts(asked: Asked) -> list[str]:
    chance = dice(asked, "thinking")
    return tokens("Let me think about " + " and ".join(chance.sample(_WORDS, 4)) + ".")


def shaped(asked: Asked) -> list[str]:
    """An answer in JSON, by the requested schema if there is one."""
    if isinstance(asked.format, dict):
        value = Filler(asked).value(asked.format)
    else:
        value = {"answer": "".join(prose(asked, _SHORTEST)), "words": len(asked.question.split())}
    return tokens(json.dumps(value, ensure_ascii=False))


def tool_call(asked: Asked) -> dict[str, Any]:
    """A call of the tool that fits the question best, or of the first."""
    functions = [tool.get("function") or {} for tool in asked.tools]
    words = set(re.findall(r"[a-z]+", asked.question.lower()))
    best = max(
        functions,
        key=lambda function: len(words & set(str(function.get("name", "")).lower().split("_"))),
    )
    chance = dice(asked, "call")
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    return {
        "id": "call_" + "".join(chance.choices(letters, k=8)),
        "function": {
            "index": 0,
            "name": best.get("name", ""),
            "arguments": Filler(asked).value(best.get("parameters") or {"type": "object"}),
        },
    }


class Filler:
    """Fills JSON schemas, from the question first: its names, quotations and numbers."""

    def __init__(self, asked: Asked) -> None:
        self._chance = dice(asked, "filling")
        quoted = re.findall(r'"([^"]+)"', asked.question)
        names = [
            name for name in re.findall(r"\b[A-Z][\w-]+", asked.question[1:]) if name not in quoted
        ]
        self._texts = quoted + names
        self._numbers = [float(text) for text in re.findall(r"-?\d+(?:\.\d+)?", asked.question)]

    def value(self, schema: dict[str, Any]) -> Any:
        self._root = schema
        return self._value(schema)

    def _value(self, schema: dict[str, Any]) -> Any:
        if "$ref" in schema:
            return self._value(self._found(schema["$ref"]))
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._chance.choice(schema["enum"])
        for choice in ("anyOf", "oneOf", "allOf"):
            if schema.get(choice):
                return self._value(schema[choice][0])
        kind = schema.get("type", "object" if "properties" in schema else "string")
        kind = kind[0] if isinstance(kind, list) else kind
        fill: Callable[[dict[str, Any]], Any] = getattr(self, f"_{kind}", self._string)
        return fill(schema)

    def _found(self, reference: str) -> dict[str, Any]:
        """The target of a reference, from the root of the schema."""
        found = self._root
        for name in reference.removeprefix("#").split("/")[1:]:
            found = found[name]
        return found

    def _object(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {name: self._value(each) for name, each in schema.get("properties", {}).items()}

    def _array(self, schema: dict[str, Any]) -> list[Any]:
        length = max(1, schema.get("minItems", 2))
        return [self._value(schema.get("items", {})) for _ in range(length)]

    def _string(self, schema: dict[str, Any]) -> str:
        return self._texts.pop(0) if self._texts else self._chance.choice(_WORDS)

    def _number(self, schema: dict[str, Any]) -> float:
        return self._numbers.pop(0) if self._numbers else round(self._chance.uniform(0, 100), 2)

    def _integer(self, schema: dict[str, Any]) -> int:
        least = schema.get("minimum", 0)
        return (
            int(self._numbers.pop(0)) if self._numbers else self._chance.randint(least, least + 99)
        )

    def _boolean(self, schema: dict[str, Any]) -> bool:
        return self._chance.random() < 0.5

    def _null(self, schema: dict[str, Any]) -> None:
        return None
