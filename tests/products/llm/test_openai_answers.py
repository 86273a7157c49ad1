"""What targets answer, in OpenAI's shapes: held against the types of the openai package."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import httpx
import msgspec
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.model import Model

from coatcheck.domain.ids import new_id, to_text
from coatcheck.products.llm.openai.answers import ChatTranslator, ChunkMaker, model_list
from coatcheck.products.llm.openai.native import NoLogprobs, NotCalled, Untranslatable
from coatcheck.products.llm.openai.tools import ForcedCall, OfferedFunction

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


def chunks(
    *objects: dict[str, Any], translator: ChatTranslator | None = None, **options: Any
) -> list[ChatCompletionChunk]:
    maker = ChunkMaker(JOB, "small", translator or ChatTranslator(**options))
    made = [each for native in objects for each in maker.events(json.dumps(native).encode())]
    # Strictly: the package itself takes whatever comes.
    return [
        ChatCompletionChunk.model_validate_json(
            each.removeprefix(b"data: ").removesuffix(b"\n\n"), strict=True
        )
        for each in [*made, *maker.end()]
    ]


def whole(native: dict[str, Any], job: UUID = JOB, **options: Any) -> ChatCompletion:
    made = ChatTranslator(**options).whole(job, "small", json.dumps(native).encode())
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
    first, last, usage = chunks(said("Hello"), LAST, include_usage=True)
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


def spoken(pieces: list[str], **last: Any) -> list[dict[str, Any]]:
    """A stream of these texts."""
    return [*(said(piece) for piece in pieces), LAST | last]


def called(parts: list[ChatCompletionChunk]) -> tuple[str | None, str, list[str | None]]:
    """The name, the arguments and the reasons of a call that came in parts."""
    deltas = [delta for part in parts for delta in part.choices[0].delta.tool_calls or []]
    assert {delta.index for delta in deltas} <= {0}
    functions = [delta.function for delta in deltas if delta.function is not None]
    names = [each.name for each in functions if each.name]
    text = "".join(each.arguments or "" for each in functions)
    reasons = [part.choices[0].finish_reason for part in parts if part.choices[0].finish_reason]
    return (names[0] if names else None), text, list(reasons)


ONE = ForcedCall([OfferedFunction("weather")])
TWO = ForcedCall([OfferedFunction("weather"), OfferedFunction("travel")])
ARGUMENTS = '{"city": "Os}lo \\" {", "days": [1, {"a": 2}]}'
PIECES = [ARGUMENTS[at : at + 3] for at in range(0, len(ARGUMENTS), 3)]
CALLED = '{ "name": "travel", "arguments": ' + ARGUMENTS + " }"
CALLED_PIECES = [CALLED[at : at + 3] for at in range(0, len(CALLED), 3)]


def test_the_arguments_of_a_forced_call_are_told_as_they_come() -> None:
    parts = chunks(*spoken(PIECES), forced=ONE)
    assert called(parts) == ("weather", ARGUMENTS, ["tool_calls"])
    assert all(part.choices[0].delta.content in (None, "") for part in parts)
    assert len(parts) > 5, "not only at the end"
    answer = whole(LAST | said(ARGUMENTS), forced=ONE).choices[0]
    assert (answer.message.content, answer.finish_reason) == (None, "tool_calls")
    (call,) = answer.message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("weather", ARGUMENTS)
    first = next(each for each in parts if each.choices[0].delta.tool_calls)
    assert (first.choices[0].delta.tool_calls or [])[0].id == call.id


def test_a_forced_call_of_several_functions_says_which() -> None:
    assert called(chunks(*spoken(CALLED_PIECES), forced=TWO)) == (
        "travel",
        ARGUMENTS,
        ["tool_calls"],
    )
    (call,) = whole(LAST | said(CALLED), forced=TWO).choices[0].message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("travel", ARGUMENTS)


def test_a_forced_call_in_another_order_is_read_once_it_is_whole() -> None:
    swapped = ['{"arguments": {"a": 1}, ', '"name": "travel"}']
    assert called(chunks(*spoken(swapped), forced=TWO)) == ("travel", '{"a": 1}', ["tool_calls"])


def test_a_forced_call_that_was_cut_off_says_so() -> None:
    cut = spoken(PIECES[:4], done_reason="length")
    assert called(chunks(*cut, forced=ONE)) == ("weather", "".join(PIECES[:4]), ["length"])
    answer = whole(LAST | said("".join(PIECES[:4])) | {"done_reason": "length"}, forced=ONE)
    assert answer.choices[0].finish_reason == "length"


def test_a_target_that_says_calls_itself_is_believed() -> None:
    calls = {"tool_calls": [CALL]}
    answer = whole(LAST | said("I call.", **calls), forced=ONE).choices[0]
    assert answer.message.content is None
    assert len(answer.message.tool_calls or []) == 1


@pytest.mark.parametrize(
    ("forced", "text"),
    [
        (ONE, "I would rather talk."),
        (ONE, '{"city": '),
        (TWO, "I would rather talk."),
        (TWO, '{"name": "nobody", "arguments": {}}'),
        (TWO, '{"arguments": 3, "name": "travel"}'),
    ],
)
def test_a_model_that_does_not_call_is_told_from_one_that_does(
    forced: ForcedCall, text: str
) -> None:
    with pytest.raises(NotCalled):
        chunks(*spoken([text]), forced=forced)
    with pytest.raises(NotCalled):
        whole(LAST | said(text), forced=forced)


def test_one_call_at_a_time_is_the_first() -> None:
    other = {"function": {"name": "clock", "arguments": {}}}
    parts = chunks(
        said("", tool_calls=[CALL, other]), said("", tool_calls=[other]), LAST, one_call=True
    )
    assert called(parts)[0] == "weather"
    assert sum(len(part.choices[0].delta.tool_calls or []) for part in parts) == 1
    answer = whole(LAST | said("", tool_calls=[CALL, other]), one_call=True)
    assert len(answer.choices[0].message.tool_calls or []) == 1


def test_several_answers_are_told_apart_and_their_usage_is_one_sum() -> None:
    answer = whole(LAST | said("One") | {"other_choices": [LAST | said("Two")]})
    assert [(each.index, each.message.content) for each in answer.choices] == [
        (0, "One"),
        (1, "Two"),
    ]
    assert answer.usage is not None
    assert answer.usage.total_tokens == 12
    *parts, usage = chunks(
        said("One", tool_calls=[CALL]),
        LAST,
        said("Two", tool_calls=[CALL]),
        LAST,
        include_usage=True,
    )
    assert [(each.choices[0].index, each.choices[0].delta.content) for each in parts] == [
        (0, "One"),
        (0, None),
        (1, "Two"),
        (1, None),
    ]
    assert [each.choices[0].delta.role for each in parts] == ["assistant", None, "assistant", None]
    one, two = [call for each in parts for call in each.choices[0].delta.tool_calls or []]
    assert (one.index, two.index) == (0, 0)
    assert one.id != two.id
    assert usage.usage is not None
    assert usage.usage.total_tokens == 12


def test_log_probabilities_are_told_with_their_tokens() -> None:
    token = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105]}
    told = {"logprobs": [token | {"top_logprobs": [token]}]}
    choice = whole(LAST | said("Hi") | told, logprobs=True).choices[0]
    assert choice.logprobs is not None
    (content,) = choice.logprobs.content or []
    assert (content.token, content.logprob, content.top_logprobs[0].bytes) == (
        "Hi",
        -0.5,
        [72, 105],
    )
    part, _ = chunks(said("Hi") | told, LAST, logprobs=True)
    assert part.choices[0].logprobs is not None
    assert whole(LAST | said("Hi") | told).choices[0].logprobs is None


def test_a_target_that_knows_no_log_probabilities_is_told_from_one_that_does() -> None:
    with pytest.raises(NoLogprobs):
        whole(LAST | said("Hi"), logprobs=True)
    with pytest.raises(NoLogprobs):
        chunks(said("Hi"), LAST, logprobs=True)
    assert whole(LAST | said("", tool_calls=[CALL]), logprobs=True).choices[0].logprobs is None


def test_the_openai_package_reads_on_after_a_pause() -> None:
    """A comment tells it that the connection is alive, between events that have ids."""
    framing = ChatTranslator().framing(JOB, "small")
    first = framing.output(7, json.dumps(said("Hel")).encode()) + framing.idle() + framing.idle()
    rest = framing.output(8, json.dumps(said("lo")).encode())
    body = first + rest + framing.idle() + framing.end()

    def answer(_: httpx.Request) -> httpx.Response:
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, content=body)

    with openai.OpenAI(
        api_key="x", http_client=httpx.Client(transport=httpx.MockTransport(answer))
    ) as client:
        stream = client.chat.completions.create(model="small", messages=[], stream=True)
        read = "".join(part.choices[0].delta.content or "" for part in stream)
    assert read == "Hello"


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
