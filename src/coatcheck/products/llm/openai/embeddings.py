"""OpenAI's embeddings API, translated to a target's ``/api/embed``."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import byteorder
from typing import Final, Literal
from uuid import UUID

import msgspec

from coatcheck.products.llm.openai.fields import (
    PASSED_THROUGH,
    Fields,
    TranslatedRequest,
    invalid,
    raw,
    read_field,
    read_texts,
    reject_unsupported,
)
from coatcheck.products.llm.openai.native import Untranslatable
from coatcheck.products.llm.relay import Framing

INPUTS_MAX: Final = 2_048
"""OpenAI's own limit."""
_SUPPORTED: Final = frozenset(
    {*PASSED_THROUGH, "dimensions", "encoding_format", "input", "options", "truncate"}
)
_OLLAMA_FIELDS: Final = ("options", "truncate")
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
class EmbeddingTranslator:
    """Translates the answer to one embeddings request."""

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


def translate_embedding(given: Fields) -> TranslatedRequest:
    """Translate an embeddings request. Raises InvalidParameter for what Ollama cannot express."""
    reject_unsupported(given, _SUPPORTED, _NONE, {})
    texts = read_texts(given, "input", " (LangChain: check_embedding_ctx_length=False)")
    if not 1 <= len(texts) <= INPUTS_MAX:
        raise invalid("input", f"must have 1 to {INPUTS_MAX} texts")
    fields = {name: given[name] for name in (*PASSED_THROUGH, *_OLLAMA_FIELDS) if name in given}
    fields["input"] = raw(texts)
    dimensions: int | None = read_field(given, "dimensions", int)
    if dimensions is not None:
        if dimensions < 1:
            raise invalid("dimensions", "must be 1 or more")
        fields["dimensions"] = raw(dimensions)
    encoding = read_field(given, "encoding_format", str) or "float"
    if encoding not in ("float", "base64"):
        raise invalid("encoding_format", "must be float or base64")
    translator = EmbeddingTranslator("base64" if encoding == "base64" else "float", len(texts))
    return TranslatedRequest("embed", fields, translator)


def _bytes_of(vector: Sequence[float]) -> str:
    numbers = array("f", vector)
    if byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
