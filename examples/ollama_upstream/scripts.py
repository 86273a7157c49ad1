"""A prepared answer: its pieces in order, and the reason for its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from examples.ollama_upstream import wording
from examples.ollama_upstream.requests import Asked


@dataclass(frozen=True, slots=True)
class Piece:
    """One object of the stream: more text, more thoughts, or a tool call."""

    kind: Literal["content", "thinking", "tool_calls"]
    value: Any


@dataclass(frozen=True, slots=True)
class Script:
    pieces: list[Piece]
    done_reason: Literal["stop", "length"]

    def text(self, kind: Literal["content", "thinking"]) -> str:
        return "".join(piece.value for piece in self.pieces if piece.kind == kind)

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        return [call for p in self.pieces if p.kind == "tool_calls" for call in p.value]


def script(asked: Asked, *, thinks: bool, length: int | None) -> Script:
    """The answer to ``asked``; ``options.num_predict`` and ``options.stop`` end it early."""
    thoughts = wording.thoughts(asked) if thinks else []
    pieces = [Piece("thinking", token) for token in thoughts]
    if asked.tools and asked.asker != "tool":
        pieces.append(Piece("tool_calls", [wording.tool_call(asked)]))
    else:
        said = wording.prose(asked, length) if asked.format is None else wording.shaped(asked)
        pieces += [Piece("content", token) for token in _stopped(asked, said)]
    most = int(asked.options.get("num_predict", -1))
    if 0 < most < len(pieces):
        return Script(pieces[:most], "length")
    return Script(pieces, "stop")


def _stopped(asked: Asked, said: list[str]) -> list[str]:
    """The text up to the first stop text."""
    text = "".join(said)
    ends = [text.find(stop) for stop in asked.options.get("stop", []) if stop and stop in text]
    return wording.tokens(text[: min(ends)]) if ends else said
