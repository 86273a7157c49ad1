"""What targets answer, in OpenAI's shapes: held against the types of the openai package."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import msgspec
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.model import Model

from coatcheck.domain.ids import new_id, to_text
from coatcheck.surfaces.llm.openai_answers import (
    ChunkMaker,
    Untranslatable,
    completion,
    model_list,
)

JOB = new_id()
LAST = {
    "model": "small",
    "created_at": "2026-01-02T03:04:05.123456789Z",
    "message": {"role": "assistant", "content": ""},
    "done": True,
    "done_reason": "stop",
    "total_duration": 5,
    "prompt_eval_count": 4,
    "eval_count": 2,
}
CALL = {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}


def said(content: str, **message: Any) -> dict[str, Any]:
    return {"model": "small", "message": {"role": "assistant", "content": content} | message}


def chunks(*objects: dict[str, Any], usage: bool = False) -> list[ChatCompletionChunk]:
    maker = ChunkMaker(JOB, "small", include_usage=usage)
    made = [each for native in objects for each in maker.chunks(json.dumps(native).encode())]
    # Strictly: the package itself takes whatever comes.
    return [ChatCompletionChunk.model_validate_json(each, strict=True) for each in made]


def whole(native: dict[str, Any], job: UUID = JOB) -> ChatCompletion:
    made = completion(job, "small", json.dumps(native).encode())
    return ChatCompletion.model_validate_json(msgspec.json.encode(made), strict=True)


def test_a_whole_answer() -> None:
    answer = whole(LAST | said("Hello there"))
    (choice,) = answer.choices
    assert (choice.message.content, choice.message.role) == ("Hello there", "assistant")
    assert (choice.finish_reason, choice.index, choice.message.tool_calls) == ("stop", 0, None)
    assert answer.model == "small"
    assert answer.usage is not None
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (4, 2, 6)


def test_everyone_who_reads_a_job_is_given_the_same_id_and_time() -> None:
    answer = whole(LAST | said("Hello"))
    (chunk,) = chunks(said("Hello"))
    assert answer.id == chunk.id == f"chatcmpl-{to_text(JOB)}"
    assert answer.created == chunk.created == (JOB.int >> 80) // 1000


def test_an_answer_that_was_cut_off_says_so() -> None:
    cut = LAST | {"done_reason": "length"}
    assert whole(cut).choices[0].finish_reason == "length"
    assert chunks(cut)[0].choices[0].finish_reason == "length"


def test_thoughts_are_set_apart() -> None:
    answer = whole(LAST | said("42", thinking="Let me see"))
    assert answer.choices[0].message.model_extra == {"reasoning": "Let me see"}
    (chunk,) = chunks(said("", thinking="Let me"))
    assert chunk.choices[0].delta.model_extra == {"reasoning": "Let me"}


def test_calls_are_told_with_their_arguments_as_text() -> None:
    answer = whole(LAST | said("", tool_calls=[CALL, CALL | {"id": "its_own"}]))
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    first, second = choice.message.tool_calls
    assert first.type == second.type == "function"
    assert first.function.name == "weather"
    assert json.loads(first.function.arguments) == {"city": "Oslo"}
    assert first.id != second.id == "its_own"


def test_a_stream_names_its_speaker_once_and_ends_with_a_reason() -> None:
    first, second, last = chunks(said("Hel"), said("lo"), LAST)
    assert first.choices[0].delta.to_dict() == {"role": "assistant", "content": "Hel"}
    assert second.choices[0].delta.to_dict() == {"content": "lo"}
    assert last.choices[0].delta.to_dict() == {}
    reasons = [each.choices[0].finish_reason for each in (first, second, last)]
    assert reasons == [None, None, "stop"]
    assert "usage" not in first.to_dict()


def test_usage_comes_last_in_a_chunk_of_its_own_if_it_is_asked_for() -> None:
    first, last, usage = chunks(said("Hello"), LAST, usage=True)
    assert first.to_dict()["usage"] is None
    assert last.to_dict()["usage"] is None
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.total_tokens == 6


def test_calls_of_several_chunks_are_counted_through() -> None:
    first, second, last = chunks(
        said("", tool_calls=[CALL, CALL]), said("", tool_calls=[CALL]), LAST
    )
    calls = [
        *(first.choices[0].delta.tool_calls or []),
        *(second.choices[0].delta.tool_calls or []),
    ]
    assert [call.index for call in calls] == [0, 1, 2]
    assert len({call.id for call in calls}) == 3
    assert last.choices[0].finish_reason == "tool_calls"


def test_calls_are_given_the_same_ids_in_a_stream_and_whole() -> None:
    (streamed,) = chunks(said("", tool_calls=[CALL]))
    answer = whole(LAST | said("", tool_calls=[CALL]))
    told, also_told = streamed.choices[0].delta.tool_calls, answer.choices[0].message.tool_calls
    assert told is not None
    assert also_told is not None
    assert told[0].id == also_told[0].id


def test_a_generation_is_read_as_well() -> None:
    """A known idempotency key may name one."""
    answer = whole({"model": "small", "response": "Hello", "done": True, "done_reason": "stop"})
    assert answer.choices[0].message.content == "Hello"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 0


@pytest.mark.parametrize(
    "odd",
    [
        LAST | {"model": 5},
        LAST | {"eval_count": "many"},
        said("", tool_calls=[{"name": "weather"}]),
        said("", tool_calls=[{"function": {"name": "weather", "arguments": "{}"}}]) | {"done": 1},
    ],
)
def test_what_no_ollama_says_is_told_from_what_can_be_translated(odd: dict[str, Any]) -> None:
    with pytest.raises(Untranslatable):
        chunks(odd)
    with pytest.raises(Untranslatable):
        whole(odd)


def test_models_are_listed_with_when_and_whose() -> None:
    listed = model_list(
        [
            {"name": "small:latest", "modified_at": "2026-01-02T03:04:05.123456789+01:00"},
            {"model": "hf.co/someone/large:q4", "modified_at": "no time"},
        ]
    )
    decoded = json.loads(msgspec.json.encode(listed))
    assert decoded["object"] == "list"
    small, large = [Model.model_validate(each, strict=True) for each in decoded["data"]]
    assert (small.id, small.owned_by, small.created) == ("small:latest", "library", 1767319445)
    assert (large.id, large.owned_by, large.created) == (
        "hf.co/someone/large:q4",
        "hf.co/someone",
        0,
    )
