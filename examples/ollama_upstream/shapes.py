"""Responses in the format of ``/api/chat`` and ``/api/generate``, streamed and whole."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

from examples.ollama_upstream import wording
from examples.ollama_upstream.durations import timestamp
from examples.ollama_upstream.requests import Asked
from examples.ollama_upstream.scripts import Piece, Script

Kind = Literal["chat", "generate"]


@dataclass(slots=True)
class Stopwatch:
    """When the phases of an answer began, for the figures in its last object."""

    began: float = field(default_factory=time.monotonic)
    loaded: float = 0.0
    first_token: float = 0.0

    def nanoseconds(self) -> int:
        return _nanoseconds(time.monotonic() - self.began)

    def load_nanoseconds(self) -> int:
        return _nanoseconds(self.loaded - self.began)

    def figures(self, asked: Asked, tokens: int) -> dict[str, int]:
        now = time.monotonic()
        return {
            "total_duration": self.nanoseconds(),
            "load_duration": self.load_nanoseconds(),
            "prompt_eval_count": len(wording.tokens(asked.prompt)),
            "prompt_eval_duration": _nanoseconds(self.first_token - self.loaded),
            "eval_count": tokens,
            "eval_duration": _nanoseconds(now - self.first_token),
        }


def _nanoseconds(seconds: float) -> int:
    return max(1, int(seconds * 1e9))


def piece(kind: Kind, asked: Asked, said: Piece) -> dict[str, Any]:
    """One object of a stream."""
    made = _head(asked.model) | _body(kind, {said.kind: said.value}) | {"done": False}
    return made | _logprobs(asked, [said])


def last(kind: Kind, asked: Asked, script: Script, watch: Stopwatch) -> dict[str, Any]:
    """The object that ends a stream."""
    return _head(asked.model) | _body(kind, {}) | _end(kind, asked, script, watch)


def whole(kind: Kind, asked: Asked, script: Script, watch: Stopwatch) -> dict[str, Any]:
    """The answer to a request with ``"stream": false``."""
    said: dict[str, Any] = {"content": script.text("content")}
    if thinking := script.text("thinking"):
        said["thinking"] = thinking
    if script.tool_calls:
        said["tool_calls"] = script.tool_calls
    made = _head(asked.model) | _body(kind, said) | _end(kind, asked, script, watch)
    return made | _logprobs(asked, script.pieces)


def nothing_said(kind: Kind, model: str, reason: Literal["load", "unload"]) -> dict[str, Any]:
    """The answer to a request without a prompt."""
    return _head(model) | _body(kind, {}) | {"done": True, "done_reason": reason}


def drawing(model: str, step: int, steps: int) -> dict[str, Any]:
    """One object of the stream of a picture in progress."""
    return _head(model) | {"response": "", "done": False, "completed": step, "total": steps}


def drawn(asked: Asked, image: str, watch: Stopwatch) -> dict[str, Any]:
    """The object that ends such a stream."""
    end = {"response": "", "done": True, "done_reason": "stop", "image": image}
    times = {"total_duration": watch.nanoseconds(), "load_duration": watch.load_nanoseconds()}
    return _head(asked.model) | end | times


def _head(model: str) -> dict[str, Any]:
    return {"model": model, "created_at": timestamp(time.time())}


def _body(kind: Kind, said: dict[str, Any]) -> dict[str, Any]:
    match kind:
        case "chat":
            return {"message": {"role": "assistant", "content": "", **said}}
        case "generate":
            rest = {name: value for name, value in said.items() if name != "content"}
            return {"response": said.get("content", ""), **rest}
        case _:
            assert_never(kind)


def _end(kind: Kind, asked: Asked, script: Script, watch: Stopwatch) -> dict[str, Any]:
    end: dict[str, Any] = {"done": True, "done_reason": script.done_reason}
    if kind == "generate" and not asked.raw:
        said = wording.tokens(asked.prompt) + [str(each.value) for each in script.pieces]
        end["context"] = [_number(token) for token in said]
    return end | watch.figures(asked, len(script.pieces))


def _logprobs(asked: Asked, pieces: Iterable[Piece]) -> dict[str, Any]:
    """The log probabilities of the tokens, if requested."""
    if asked.top_logprobs is None:
        return {}
    logprobs = [
        _logprob(each.value) | {"top_logprobs": [_logprob(each.value)] * asked.top_logprobs}
        for each in pieces
        if each.kind == "content"
    ]
    return {"logprobs": logprobs} if logprobs else {}


def _logprob(token: str) -> dict[str, Any]:
    encoded = token.encode("utf-8", "surrogatepass")
    return {"token": token, "logprob": -_number(token) / 128_000, "bytes": list(encoded)}


def _number(token: str) -> int:
    """The token's number in the vocabulary."""
    return zlib.crc32(token.encode("utf-8", "surrogatepass")) % 128_000
