"""Embeddings as OpenAI's clients ask for them: a job that calls a target's ``/api/embed``."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import byteorder
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from coatcheck.products.llm.openai.fields import (
    AS_THEY_ARE,
    CompletionOrder,
    Fields,
    raw,
    read_field,
    refuse_what_would_be_lost,
    wrong,
)
from coatcheck.products.llm.openai.native import Untranslatable
from coatcheck.products.llm.relay import Framing

INPUTS_MAX: Final = 2_048
"""As many as OpenAI takes."""
_READ: Final = frozenset(
    {*AS_THEY_ARE, "dimensions", "encoding_format", "input", "options", "truncate"}
)
_PASSED_ON: Final = ("options", "truncate")
_NONE: Final[Mapping[str, tuple[object, ...]]] = {}

Encoding = Literal["float", "base64"]


class Embedding(msgspec.Struct, frozen=True):
    """One text's vector: numbers, or their bytes as float32, little-endian, in base64."""

    embedding: Sequence[float] | str
    index: int
    object: Literal["embedding"] = "embedding"


class EmbeddingUsage(msgspec.Struct, frozen=True):
    """How many tokens were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct, frozen=True):
    """The vectors, in the order of the texts."""

    data: Sequence[Embedding]
    model: str
    usage: EmbeddingUsage
    object: Literal["list"] = "list"


class _Native(msgspec.Struct):
    embeddings: list[list[float]]
    model: str | None = None
    prompt_eval_count: int | None = None


_decode: Final = msgspec.json.Decoder(_Native).decode


@dataclass(frozen=True, slots=True)
class EmbeddingAnswering:
    """How embeddings are written."""

    encoding: Encoding
    texts: int

    def whole(self, _: UUID, model: str, data: bytes, /) -> EmbeddingList:
        try:
            native = _decode(data)
        except msgspec.ValidationError as error:
            raise Untranslatable from error
        if len(native.embeddings) != self.texts:
            raise Untranslatable
        vectors = [
            Embedding(_bytes_of(each) if self.encoding == "base64" else each, at)
            for at, each in enumerate(native.embeddings)
        ]
        tokens = native.prompt_eval_count or 0
        return EmbeddingList(vectors, native.model or model, EmbeddingUsage(tokens, tokens))

    def framing(self, _: UUID, __: str, /) -> Framing:
        raise AssertionError("embeddings are not streamed")


def read_embedding_order(given: Fields) -> CompletionOrder:
    """Raises InvalidParameter for what cannot be said in Ollama's words."""
    refuse_what_would_be_lost(given, _READ, _NONE, {})
    texts = _texts(given)
    fields = {name: given[name] for name in (*AS_THEY_ARE, *_PASSED_ON) if name in given}
    fields["input"] = raw(texts)
    dimensions: int | None = read_field(given, "dimensions", int)
    if dimensions is not None:
        if dimensions < 1:
            raise wrong("dimensions", "must be 1 or more")
        fields["dimensions"] = raw(dimensions)
    encoding = read_field(given, "encoding_format", str) or "float"
    if encoding not in ("float", "base64"):
        raise wrong("encoding_format", "must be float or base64")
    answering = EmbeddingAnswering("base64" if encoding == "base64" else "float", len(texts))
    return CompletionOrder("embed", fields, answering)


def _texts(given: Fields) -> list[str]:
    value: Any = read_field(given, "input", object)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise wrong("input", "must be a text, or a list of texts")
    if not 1 <= len(texts) <= INPUTS_MAX:
        raise wrong("input", f"must have 1 to {INPUTS_MAX} texts")
    for at, text in enumerate(texts):
        if isinstance(text, (int, list)) and not isinstance(text, bool):
            raise wrong(
                "input",
                "must be text: tokens are numbers of OpenAI's vocabulary, which no model here has "
                "(LangChain: check_embedding_ctx_length=False)",
            )
        if not isinstance(text, str) or not text:
            raise wrong(f"input[{at}]", "must be a text that is not empty")
    return texts


def _bytes_of(vector: Sequence[float]) -> str:
    numbers = array("f", vector)
    if byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
