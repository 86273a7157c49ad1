"""The whole answer of a stream is what Ollama answers to ``"stream": false``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ollama import ChatResponse, GenerateResponse

from coatcheck.products.llm.answers import (
    ANSWER_BYTES_MAX,
    STREAM_BYTES_MAX,
    AnswerInvalid,
    AnswerTooLarge,
    ChatAnswer,
    TargetError,
    all_choices,
)

HEAD = {"model": "llama3:latest", "created_at": "2026-01-01T00:00:00.5Z"}
METRICS = {"total_duration": 10, "load_duration": 1, "prompt_eval_count": 3, "eval_count": 4}
CALL = {"function": {"name": "weather", "arguments": {"city": "Köln", "deep": [{"a": None}]}}}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
calls = st.lists(
    st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": texts})}), max_size=2
)
probabilities = st.lists(
    st.fixed_dictionaries({"token": texts, "logprob": st.integers(-9, 0)}), max_size=2
)
pieces_of_a_chat = st.tuples(texts, texts, calls, st.lists(texts, max_size=2), probabilities)


def line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def composed(kind: Any, objects: list[dict[str, Any]]) -> dict[str, Any]:
    answer = ChatAnswer(kind)
    for each in objects:
        assert not answer.done
        answer.add(line(each))
    assert answer.done
    whole: dict[str, Any] = json.loads(answer.whole())
    return whole


def repeat(answer: ChatAnswer, piece: bytes, times: int) -> None:
    for _ in range(times):
        answer.add(piece)


def without_what_is_empty(fields: dict[str, Any]) -> dict[str, Any]:
    """Ollama leaves these out of what it writes if they are empty, but for the text itself."""
    return {
        name: value
        for name, value in fields.items()
        if value or name not in ("thinking", "tool_calls", "images", "logprobs")
    }


@given(st.lists(pieces_of_a_chat, min_size=1, max_size=5))
def test_a_chat_is_joined_as_ollama_joins_it(pieces: list[tuple[Any, ...]]) -> None:
    objects = [
        without_what_is_empty(
            {
                **HEAD,
                "message": without_what_is_empty(
                    {
                        "role": "assistant",
                        "content": content,
                        "thinking": thinking,
                        "images": images,
                        "tool_calls": tool_calls,
                    }
                ),
                "done": False,
                "logprobs": logprobs,
            }
        )
        for content, thinking, tool_calls, images, logprobs in pieces
    ]
    objects[-1] |= {"done": True, "done_reason": "stop", **METRICS}

    def joined(place: int) -> str:
        return "".join(piece[place] for piece in pieces)

    def gathered(place: int) -> list[Any]:
        return [each for piece in pieces for each in piece[place]]

    said = {
        "role": "assistant",
        "content": joined(0),
        "thinking": joined(1),
        "images": gathered(3),
        "tool_calls": gathered(2),
    }
    expected = {
        **HEAD,
        "message": without_what_is_empty(said),
        "done": True,
        "done_reason": "stop",
        **METRICS,
        "logprobs": gathered(4),
    }
    assert composed("chat", objects) == without_what_is_empty(expected)


@given(st.lists(st.tuples(texts, texts), min_size=1), st.lists(st.integers()))
def test_a_generation_is_joined_as_ollama_joins_it(
    pieces: list[tuple[str, str]], context: list[int]
) -> None:
    objects = [
        without_what_is_empty({**HEAD, "response": text, "thinking": thought, "done": False})
        for text, thought in pieces
    ]
    objects[-1] |= {"done": True, "done_reason": "length", "context": context, **METRICS}
    expected = {
        **HEAD,
        "response": "".join(text for text, _ in pieces),
        "thinking": "".join(thought for _, thought in pieces),
        "done": True,
        "done_reason": "length",
        "context": context,
        **METRICS,
    }
    assert composed("generate", objects) == without_what_is_empty(expected)


def test_the_ollama_package_reads_what_was_composed() -> None:
    chat = composed(
        "chat",
        [
            {
                **HEAD,
                "message": {"role": "assistant", "content": "", "thinking": "h"},
                "done": False,
            },
            {
                **HEAD,
                "message": {"role": "assistant", "content": "", "tool_calls": [CALL]},
                "done": False,
            },
            {**HEAD, "message": {"role": "assistant", "content": "ok"}, "done": True, **METRICS},
        ],
    )
    read = ChatResponse.model_validate(chat)
    assert (read.message.content, read.message.thinking) == ("ok", "h")
    assert read.message.tool_calls is not None
    assert read.message.tool_calls[0].function.arguments == CALL["function"]["arguments"]
    assert read.eval_count == 4
    assert list(chat["message"]) == ["role", "content", "thinking", "tool_calls"]

    generated = composed(
        "generate",
        [{**HEAD, "response": "o", "done": False}, {**HEAD, "response": "k", "done": True}],
    )
    assert GenerateResponse.model_validate(generated).response == "ok"


def test_what_is_not_known_here_stays_as_the_target_wrote_it() -> None:
    answer = ChatAnswer("chat")
    answer.add(line({**HEAD, "message": {"role": "assistant", "content": "a"}, "done": False}))
    last = b'{"new": [1.50, {"x":1e5}], "message": {"content":"b","mood": 0.10 }, "done": true}'
    answer.add(last)
    whole = answer.whole()
    assert b'"new":[1.50, {"x":1e5}]' in whole
    assert b'"mood":0.10' in whole
    assert json.loads(whole)["message"]["content"] == "ab"


def test_an_answer_of_one_object_is_that_object() -> None:
    answer = ChatAnswer("generate")
    only = b'{"model": "m",  "response": "", "done": true, "done_reason": "load"}'
    answer.add(only)
    assert answer.whole() == only


def test_images_are_gathered_from_wherever_they_are() -> None:
    chat = ChatAnswer("chat")
    chat.add(line({"message": {"content": "", "images": ["QQ==", "Qg=="]}, "done": False}))
    chat.add(line({"message": {"content": "", "images": ["Qw=="]}, "done": True}))
    assert chat.images == ["QQ==", "Qg==", "Qw=="]
    generated = ChatAnswer("generate")
    generated.add(line({"response": "", "image": "QQ==", "done": True}))
    assert generated.images == ["QQ=="]


@pytest.mark.parametrize(
    "bad",
    [
        b"garbage",
        b"[]",
        b'"text"',
        b"{}",
        b'{"hello": "world"}',
        b'{"done": "yes"}',
        b'{"done": false, "message": "text"}',
        b'{"done": false, "message": {"content": 7}}',
        b'{"done": false, "x": "\xff"}',
        b'{"done": false',
        b"[" * 100_000,
        b'{"done": false, "x": ' + b"[" * 100_000,
    ],
)
def test_what_is_not_of_the_ollama_api_is_refused(bad: bytes) -> None:
    with pytest.raises(AnswerInvalid):
        ChatAnswer("chat").add(bad)


@pytest.mark.parametrize(
    ("said", "text"),
    [(b'"out of memory"', "out of memory"), (b'{"code": 7}', ""), (b"7", "")],
)
def test_an_error_in_the_stream_is_an_error(said: bytes, text: str) -> None:
    with pytest.raises(TargetError) as error:
        ChatAnswer("chat").add(b'{"error": ' + said + b"}")
    assert str(error.value) == text


def test_no_error_is_no_error() -> None:
    ChatAnswer("chat").add(b'{"error": null, "done": false}')


def test_an_answer_that_grows_beyond_its_bound_is_given_up() -> None:
    answer = ChatAnswer("chat")
    piece = line({"message": {"content": "ä" * 500_000}, "done": False})
    repeat(answer, piece, ANSWER_BYTES_MAX // 1_000_000 - 1)
    with pytest.raises(AnswerTooLarge):
        repeat(answer, piece, 3)


def test_a_stream_that_says_nothing_without_end_is_given_up() -> None:
    answer = ChatAnswer("chat")
    piece = line({"message": {"content": ""}, "done": False, "padding": "x" * 4_000_000})
    repeat(answer, piece, STREAM_BYTES_MAX // 4_000_000 - 1)
    with pytest.raises(AnswerTooLarge):
        repeat(answer, piece, 2)


def test_embeddings_come_in_one_object() -> None:
    answer = ChatAnswer("embed")
    whole = HEAD | {"embeddings": [[0.5, -1]], "prompt_eval_count": 3}
    answer.add(line(whole))
    assert (answer.objects, answer.done) == (1, False)
    assert json.loads(answer.whole()) == whole
    with pytest.raises(AnswerInvalid):
        ChatAnswer("embed").add(line(HEAD | {"done": True}))
    with pytest.raises(TargetError, match="no such thing"):
        ChatAnswer("embed").add(line({"error": "no such thing"}))
    with pytest.raises(AnswerTooLarge):
        ChatAnswer("embed", bytes_max=10).add(line(whole))


def test_several_answers_are_the_first_with_the_others_in_it() -> None:
    one, two, three = ({"message": {"content": text}, "done": True} for text in "abc")
    assert json.loads(all_choices([line(one), line(two), line(three)])) == one | {
        "other_choices": [two, three]
    }
    assert all_choices([line(one)]) == line(one)
