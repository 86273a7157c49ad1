"""How models are named, and what the rows of llm jobs hold."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.domain.errors import InvalidParameter
from coatcheck.domain.service_definition import is_reserved
from coatcheck.installed import reserved_services
from coatcheck.products.llm.model import (
    LLM_ENDPOINTS,
    LLM_KINDS,
    MODEL_NAME_CHARACTERS_MAX,
    LlmRequest,
    StoredAnswer,
    model_name,
)


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("llama3", "llama3:latest"),
        ("llama3:latest", "llama3:latest"),
        ("llama3:8b", "llama3:8b"),
        ("library/llama3", "library/llama3:latest"),
        ("registry.example:5000/library/llama3", "registry.example:5000/library/llama3:latest"),
        ("registry.example:5000/library/llama3:8b", "registry.example:5000/library/llama3:8b"),
    ],
)
def test_a_model_without_a_tag_is_its_latest(spelled: str, name: str) -> None:
    assert model_name(spelled) == name


@given(st.text(min_size=1, max_size=MODEL_NAME_CHARACTERS_MAX).filter(str.isprintable))
def test_a_name_that_was_normalised_stays_as_it_is(text: str) -> None:
    name = model_name(text)
    assert name.startswith(text)
    assert len(name) > MODEL_NAME_CHARACTERS_MAX or model_name(name) == name


@pytest.mark.parametrize("text", ["", "x" * 201, "two\nlines", "nul\0", "half \ud800 of a pair"])
def test_what_cannot_name_a_model_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match=r"model: must have 1 to 200 printable characters"):
        model_name(text)


def test_the_endpoints_are_coatcheck_s_own() -> None:
    assert dict(LLM_ENDPOINTS) == {
        "chat": "llm.post__chat",
        "generate": "llm.post__generate",
        "embed": "llm.post__embed",
    }
    assert {LLM_ENDPOINTS[kind] for kind in LLM_KINDS.values()} == {*LLM_KINDS}
    assert is_reserved("LLM", reserved_services())


def test_a_body_is_kept_byte_for_byte() -> None:
    body = b'{"model": "x",  "options": {"seed": 12345678901234567890, "t": 1.50}}'
    stored = msgspec.json.encode(LlmRequest("chat", "x:latest", msgspec.Raw(body)))
    assert bytes(msgspec.json.decode(stored, type=LlmRequest).body) == body


def test_an_answer_is_in_the_row_or_an_artifact() -> None:
    inline = msgspec.json.encode(StoredAnswer(inline=msgspec.Raw(b'{"done":true}')))
    assert inline == b'{"inline":{"done":true}}'
    large = msgspec.json.encode(StoredAnswer(artifact="result.json"))
    assert large == b'{"artifact":"result.json"}'
    assert not bytes(msgspec.json.decode(large, type=StoredAnswer).inline)
