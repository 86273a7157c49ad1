"""The real ``openai`` package against Coatcheck: nothing but its base URL and key was changed."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio
from pydantic import BaseModel

from coatcheck.domain.tenants import RateLimit
from tests.databases import Databases
from tests.products.llm.talking import MODEL, Talking, aside, talking

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


class Person(BaseModel):
    name: str
    age: int


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talk(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Talking]:
    async with (
        databases.fresh() as dsn,
        talking(dsn, tmp_path_factory.mktemp("deployment")) as opened,
    ):
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def client(talk: Talking) -> AsyncIterator[openai.AsyncOpenAI]:
    async with talk.openai() as opened:
        yield opened


def asks(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


async def test_a_chat_is_answered(talk: Talking, client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=asks("Hello"), temperature=0.5, seed=7, user="somebody"
    )
    (choice,) = answer.choices
    assert choice.message.content
    assert choice.message.content.startswith("You said: Hello")
    assert (choice.finish_reason, choice.message.role) == ("stop", "assistant")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    sent = json.loads(talk.upstream.seen.bodies("/api/chat")[-1])
    assert sent["options"] == {"temperature": 0.5, "seed": 7}
    assert "user" not in sent


async def test_a_stream_says_the_same_and_ends_with_its_usage(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model=MODEL, messages=asks("Hello"))
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=asks("Hello"),
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, usage = [chunk async for chunk in stream]
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert said == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "stop"]
    assert usage.usage == whole.usage
    assert len({chunk.id for chunk in chunks}) == 1


async def test_the_synchronous_client_works_as_well(talk: Talking) -> None:
    def converse() -> tuple[str, str]:
        with openai.OpenAI(base_url=f"{talk.url()}/v1", api_key=talk.deployment.key) as client:
            create = client.chat.completions.create
            whole = create(model=MODEL, messages=asks("Hello")).choices[0].message.content
            parts = create(model=MODEL, messages=asks("Hello"), stream=True)
            return whole or "", "".join(part.choices[0].delta.content or "" for part in parts)

    whole, streamed = await aside(converse)
    assert whole == streamed != ""


async def test_an_answer_cut_short_says_so(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=asks("Hello"), max_completion_tokens=3
    )
    assert answer.choices[0].finish_reason == "length"


async def test_a_tool_is_called_and_its_answer_taken(
    talk: Talking, client: openai.AsyncOpenAI
) -> None:
    messages = asks("What is two and three?")
    tools: list[Any] = [ADD]
    called = await client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
    message = called.choices[0].message
    assert called.choices[0].finish_reason == "tool_calls"
    assert message.content is None
    (call,) = message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "add"
    assert set(json.loads(call.function.arguments)) == {"a", "b"}
    # As the package's users do it: its own message is sent back.
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": "5"}]
    answered = await client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
    assert answered.choices[0].finish_reason == "stop"
    assert answered.choices[0].message.content
    sent = json.loads(talk.upstream.seen.bodies("/api/chat")[-1])["messages"]
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == json.loads(call.function.arguments)
    assert sent[2] == {
        "role": "tool",
        "content": "5",
        "tool_call_id": call.id,
        "tool_name": "add",
    }


async def test_a_streamed_tool_call_can_be_put_together(client: openai.AsyncOpenAI) -> None:
    tools: list[Any] = [ADD]
    async with client.chat.completions.stream(
        model=MODEL, messages=asks("Add"), tools=tools
    ) as stream:
        whole = await stream.get_final_completion()
    (call,) = whole.choices[0].message.tool_calls or []
    assert call.function.name == "add"
    assert whole.choices[0].finish_reason == "tool_calls"


TIME: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "time",
        "parameters": {
            "type": "object",
            "properties": {"place": {"$ref": "#/$defs/Place"}},
            "required": ["place"],
            "$defs": {
                "Place": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                }
            },
        },
    },
}


@pytest.mark.parametrize(
    ("choice", "name", "fields"),
    [
        ("required", "time", {"place"}),
        ({"type": "function", "function": {"name": "add"}}, "add", {"a", "b"}),
        ({"type": "function", "function": {"name": "time"}}, "time", {"place"}),
    ],
)
async def test_a_call_is_made_where_one_has_to_be(
    client: openai.AsyncOpenAI, choice: Any, name: str, fields: set[str]
) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": asks("Hello"),
        "tools": [TIME, ADD],
        "tool_choice": choice,
        "parallel_tool_calls": False,
    }
    whole = await client.chat.completions.create(**asked)
    (call,) = whole.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == name
    assert set(json.loads(call.function.arguments)) == fields
    assert (whole.choices[0].finish_reason, whole.choices[0].message.content) == (
        "tool_calls",
        None,
    )
    async with client.chat.completions.stream(**asked) as stream:
        streamed = await stream.get_final_completion()
    (also,) = streamed.choices[0].message.tool_calls or []
    assert (also.function.name, also.function.arguments) == (name, call.function.arguments)
    assert streamed.choices[0].finish_reason == "tool_calls"


async def test_a_forced_call_is_taken_back_into_the_conversation(
    client: openai.AsyncOpenAI,
) -> None:
    messages = asks("Hello")
    tools: list[Any] = [ADD]
    called = await client.chat.completions.create(
        model=MODEL, messages=messages, tools=tools, tool_choice="required"
    )
    message = called.choices[0].message
    (call,) = message.tool_calls or []
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": "5"}]
    answered = await client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
    assert (answered.choices[0].message.content or "").startswith("The tool says: 5")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_target_that_cannot_be_held_to_a_call_is_named_as_the_reason(
    talk: Talking, client: openai.AsyncOpenAI, stream: bool
) -> None:
    tools: list[Any] = [ADD]
    talk.upstream.tuning.keeps_to_schemas = False
    try:
        with pytest.raises(openai.APIError) as refused:  # noqa: PT012
            answer: Any = await client.chat.completions.create(
                model=MODEL,
                messages=asks("Hello"),
                tools=tools,
                tool_choice="required",
                stream=stream,
            )
            assert [each async for each in answer]
    finally:
        talk.upstream.tuning.keeps_to_schemas = True
    assert refused.value.code == "tool_not_called"
    assert "tool_choice" in refused.value.message


async def test_several_answers_are_one_job(talk: Talking, client: openai.AsyncOpenAI) -> None:
    one = await client.chat.completions.create(model=MODEL, messages=asks("Hello"), seed=1)
    raw = await client.chat.completions.with_raw_response.create(
        model=MODEL, messages=asks("Hello"), n=3, seed=1
    )
    answer = raw.parse()
    texts = [choice.message.content for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert texts[0] == one.choices[0].message.content
    assert len(set(texts)) == 3
    assert answer.usage is not None
    assert one.usage is not None
    assert answer.usage.prompt_tokens == 3 * one.usage.prompt_tokens
    job = (await talk.deployment.http.get(raw.headers["Location"])).json()
    assert job["result"]["message"]["content"] == texts[0]
    others = job["result"]["other_choices"]
    assert [each["message"]["content"] for each in others] == texts[1:]
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=asks("Hello"),
        n=3,
        seed=1,
        stream=True,
        stream_options={"include_usage": True},
    )
    *chunks, usage = [chunk async for chunk in stream]
    assert usage.usage == answer.usage
    streamed = ["", "", ""]
    for chunk in chunks:
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == texts
    ends = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason]
    assert ends == ["stop"] * 3


async def test_tokens_are_told_with_how_likely_they_were(client: openai.AsyncOpenAI) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": asks("Hello"),
        "logprobs": True,
        "top_logprobs": 2,
    }
    choice = (await client.chat.completions.create(**asked)).choices[0]
    assert choice.logprobs is not None
    tokens = choice.logprobs.content or []
    assert "".join(each.token for each in tokens) == choice.message.content
    assert all(each.logprob <= 0 and len(each.top_logprobs) == 2 for each in tokens)
    told: list[Any] = []
    async for chunk in await client.chat.completions.create(**asked, stream=True):
        told += (chunk.choices[0].logprobs.content or []) if chunk.choices[0].logprobs else []
    assert told == tokens


@pytest.mark.parametrize("stream", [False, True])
async def test_a_target_without_log_probabilities_is_named_as_the_reason(
    talk: Talking, client: openai.AsyncOpenAI, stream: bool
) -> None:
    talk.upstream.tuning.tells_logprobs = False
    try:
        with pytest.raises(openai.APIError, match=r"0\.12\.11") as refused:  # noqa: PT012
            answer: Any = await client.chat.completions.create(
                model=MODEL, messages=asks("Hello"), logprobs=True, stream=stream
            )
            assert [each async for each in answer]
    finally:
        talk.upstream.tuning.tells_logprobs = True
    assert refused.value.code == "logprobs_not_supported"


async def test_an_answer_is_parsed_by_its_schema(talk: Talking, client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.parse(
        model=MODEL, messages=asks("Who?"), response_format=Person
    )
    assert isinstance(answer.choices[0].message.parsed, Person)
    sent = json.loads(talk.upstream.seen.bodies("/api/chat")[-1])
    assert set(sent["format"]["properties"]) == {"name", "age"}


async def test_an_image_is_sent_along(talk: Talking, client: openai.AsyncOpenAI) -> None:
    image = base64.b64encode(b"not looked at here").decode()
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}},
    ]
    messages: list[Any] = [{"role": "user", "content": parts}]
    answer = await client.chat.completions.create(model="llava", messages=messages)
    assert answer.choices[0].message.content
    sent = json.loads(talk.upstream.seen.bodies("/api/chat")[-1])["messages"]
    assert sent == [{"role": "user", "content": "What is this?", "images": [image]}]


async def test_thoughts_are_told_apart(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="qwen3:8b", messages=asks("Hm?"), reasoning_effort="low"
    )
    assert (answer.choices[0].message.model_extra or {})["reasoning"]


async def test_models_are_listed_and_found_by_their_names(client: openai.AsyncOpenAI) -> None:
    models = [model async for model in client.models.list()]
    assert "llama3.2:latest" in [model.id for model in models]
    assert all(model.created > 0 for model in models)
    assert (await client.models.retrieve("llama3.2")).id == "llama3.2:latest"
    slashed = await client.models.retrieve("x/z-image-turbo:latest")
    assert (slashed.id, slashed.owned_by) == ("x/z-image-turbo:latest", "x")
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nobody")


async def test_headers_lead_to_the_job(talk: Talking, client: openai.AsyncOpenAI) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model=MODEL, messages=asks("Hello")
    )
    job = (await talk.deployment.http.get(raw.headers["Location"])).json()
    assert job["job_id"] == raw.headers["X-Job-Id"]
    assert job["result"]["message"]["content"] == raw.parse().choices[0].message.content
    assert raw.parse().id == f"chatcmpl-{job['job_id']}"


async def test_an_unknown_model_is_not_found_and_not_tried_again(
    talk: Talking, client: openai.AsyncOpenAI
) -> None:
    with pytest.raises(openai.NotFoundError, match="'nobody' not found") as whole:
        await client.chat.completions.create(model="nobody", messages=asks("Hello"))
    assert (whole.value.code, whole.value.type) == ("model_not_found", "not_found_error")
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(model="nobody", messages=asks("Hi"), stream=True)


async def test_what_would_be_lost_is_refused_by_its_name(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(model=MODEL, messages=asks("Hello"), n=9)
    assert refused.value.param == "n"
    assert "1 to 8" in refused.value.message
    with pytest.raises(openai.BadRequestError) as unsaid:
        await client.chat.completions.create(model=MODEL, messages=[])
    assert unsaid.value.param == "messages"


async def test_who_has_no_key_is_not_let_in(talk: Talking) -> None:
    async with talk.openai(key="cck_0000000000000000_nothing") as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.chat.completions.create(model=MODEL, messages=asks("Hello"))
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()


async def test_who_asks_too_often_is_told_so(talk: Talking) -> None:
    key = await talk.deployment.create_key(rate=RateLimit(1, 3600))
    async with talk.openai(key=key, max_retries=0) as hasty:
        await hasty.models.list()
        with pytest.raises(openai.RateLimitError) as refused:
            await hasty.chat.completions.create(model=MODEL, messages=asks("Hello"))
    assert refused.value.response.headers["Retry-After"]
    assert refused.value.code == "rate_limited"
