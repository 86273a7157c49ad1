"""OpenAI's Responses API, with the real ``openai`` package: jobs like chats."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest
import pytest_asyncio
from openai.types.responses import ParsedResponse, Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from examples.ollama_upstream import Fault
from tests.databases import Databases
from tests.products.llm.talking import MODEL, Talking, talking

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADD: dict[str, Any] = {
    "type": "function",
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "strict": True,
}
CLOCK: dict[str, Any] = {"type": "function", "name": "clock", "parameters": {"type": "object"}}
ASKED: dict[str, Any] = {"model": MODEL, "input": "Hello"}


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
    async with talk.openai(max_retries=0) as opened:
        yield opened


@pytest.fixture
def http(talk: Talking) -> httpx2.AsyncClient:
    return talk.deployment.http


def sent(talk: Talking) -> dict[str, Any]:
    """What the target was asked last."""
    body: dict[str, Any] = json.loads(talk.upstream.seen.bodies("/api/chat")[-1])
    return body


async def events_of(http: httpx2.AsyncClient, **asked: Any) -> list[dict[str, Any]]:
    """The events of a stream, held against the package's own types."""
    answer = await http.post("/v1/responses", json=ASKED | {"stream": True} | asked)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == "text/event-stream"
    known: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    events = []
    for block in answer.text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        event = json.loads(fields["data"])
        assert event["type"] == fields["event"]
        known.validate_json(fields["data"])
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


async def test_a_response_is_made_as_a_job(talk: Talking, client: openai.AsyncOpenAI) -> None:
    raw = await client.responses.with_raw_response.create(
        model=MODEL,
        input="Hello",
        instructions="Be brief.",
        temperature=0.5,
        max_output_tokens=100,
        metadata={"a": "b"},
        user="somebody",
    )
    answer = raw.parse()
    assert answer.output_text.startswith("You said: Hello")
    assert (answer.status, answer.error, answer.incomplete_details) == ("completed", None, None)
    assert (answer.instructions, answer.metadata) == ("Be brief.", {"a": "b"})
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0
    said = sent(talk)
    assert said["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
    ]
    assert said["options"] == {"temperature": 0.5, "num_predict": 100}
    job = (await talk.deployment.http.get(raw.headers["Location"])).json()
    assert job["result"]["message"]["content"] == answer.output_text
    assert answer.id == f"resp_{job['job_id']}"


async def test_a_whole_response_is_of_the_packages_own_shape(http: httpx2.AsyncClient) -> None:
    """Strictly: the package itself takes whatever comes."""
    answer = await http.post("/v1/responses", json=ASKED | {"tools": [ADD], "store": False})
    Response.model_validate_json(answer.content)
    required = {name for name, field in Response.model_fields.items() if field.is_required()}
    assert required <= set(answer.json())


async def test_a_stream_says_the_same_in_openais_events(
    client: openai.AsyncOpenAI, http: httpx2.AsyncClient
) -> None:
    whole = await client.responses.create(**ASKED)
    events = await events_of(http)
    kinds = [event["type"] for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    deltas = "".join(event["delta"] for event in events[4:-4])
    assert deltas == whole.output_text == events[-4]["text"]
    last = Response.model_validate(events[-1]["response"])
    assert last.output_text == whole.output_text
    assert last.usage == whole.usage
    assert (events[0]["response"]["status"], events[0]["response"]["output"]) == ("in_progress", [])


async def test_the_packages_own_streams_put_a_response_together(
    client: openai.AsyncOpenAI,
) -> None:
    async with client.responses.stream(**ASKED) as stream:
        final: ParsedResponse[Any] = await stream.get_final_response()
    assert final.output_text == (await client.responses.create(**ASKED)).output_text


async def test_a_function_is_called_and_its_answer_taken(
    talk: Talking, client: openai.AsyncOpenAI
) -> None:
    asked: list[Any] = [{"role": "user", "content": "What is two and three?"}]
    tools: list[Any] = [ADD]
    first = await client.responses.create(model=MODEL, input=asked, tools=tools)
    (call,) = first.output
    assert call.type == "function_call"
    assert (call.name, set(json.loads(call.arguments))) == ("add", {"a", "b"})
    # As the package's users do it: its own items are sent back.
    asked += first.output
    asked.append({"type": "function_call_output", "call_id": call.call_id, "output": "5"})
    second = await client.responses.create(model=MODEL, input=asked, tools=tools)
    assert second.output_text.startswith("The tool says: 5")
    said = sent(talk)
    assert said["messages"][1]["tool_calls"][0]["function"]["arguments"] == json.loads(
        call.arguments
    )
    assert said["messages"][2] == {
        "role": "tool",
        "content": "5",
        "tool_call_id": call.call_id,
        "tool_name": "add",
    }
    assert said["tools"][0]["function"]["name"] == "add"


@pytest.mark.parametrize(
    ("choice", "name"),
    [("required", "clock"), ({"type": "function", "name": "add"}, "add"), ("auto", "add")],
)
async def test_a_call_is_streamed_and_told_whole(
    client: openai.AsyncOpenAI, http: httpx2.AsyncClient, choice: Any, name: str
) -> None:
    tools: list[Any] = [CLOCK, ADD]
    asked: dict[str, Any] = {"tools": tools, "tool_choice": choice, "input": "add 2 and 3"}
    whole = await client.responses.create(model=MODEL, **asked)
    (call,) = whole.output
    assert call.type == "function_call"
    assert (call.name, call.status) == (name, "completed")
    assert isinstance(json.loads(call.arguments), dict)
    events = await events_of(http, **asked)
    deltas = [
        event["delta"]
        for event in events
        if event["type"] == "response.function_call_arguments.delta"
    ]
    assert json.loads("".join(deltas)) == json.loads(call.arguments)
    (item,) = events[-1]["response"]["output"]
    assert (item["name"], item["arguments"]) == (name, "".join(deltas))


async def test_an_answer_is_parsed_by_its_schema(talk: Talking, client: openai.AsyncOpenAI) -> None:
    answer = await client.responses.parse(model=MODEL, input="Who?", text_format=Person)
    assert isinstance(answer.output_parsed, Person)
    assert set(sent(talk)["format"]["properties"]) == {"name", "age"}


async def test_thoughts_are_an_item_of_their_own_and_can_be_sent_back(
    talk: Talking, client: openai.AsyncOpenAI, http: httpx2.AsyncClient
) -> None:
    asked: dict[str, Any] = {"model": "qwen3:8b", "input": "Hm?", "reasoning": {"effort": "low"}}
    answer = await client.responses.create(**asked)
    thought, said = answer.output
    assert thought.type == "reasoning"
    assert thought.summary[0].text
    assert said.type == "message"
    events = await events_of(http, **asked)
    kinds = {event["type"] for event in events}
    assert "response.reasoning_summary_text.delta" in kinds
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["reasoning", "message"]
    again: list[Any] = [
        {"role": "user", "content": "Hm?"},
        *answer.output,
        {"role": "user", "content": "And?"},
    ]
    await client.responses.create(model="qwen3:8b", input=again)
    messages = sent(talk)["messages"]
    assert messages[1]["thinking"] == thought.summary[0].text
    assert messages[1]["content"] == answer.output_text


async def test_an_answer_cut_short_is_incomplete(
    client: openai.AsyncOpenAI, http: httpx2.AsyncClient
) -> None:
    answer = await client.responses.create(**ASKED, max_output_tokens=3)
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    events = await events_of(http, max_output_tokens=3)
    assert events[-1]["type"] == "response.incomplete"


async def test_tokens_are_told_with_how_likely_they_were(client: openai.AsyncOpenAI) -> None:
    answer = await client.responses.create(
        **ASKED, include=["message.output_text.logprobs"], top_logprobs=2
    )
    (said,) = answer.output
    assert said.type == "message"
    text = said.content[0]
    assert text.type == "output_text"
    assert "".join(each.token for each in text.logprobs or []) == text.text


async def test_an_image_is_sent_along(talk: Talking, client: openai.AsyncOpenAI) -> None:
    content = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGVsbG8=", "detail": "auto"},
    ]
    asked: list[Any] = [{"role": "user", "content": content}]
    await client.responses.create(model="llava", input=asked)
    assert sent(talk)["messages"] == [
        {"role": "user", "content": "What is this?", "images": ["aGVsbG8="]}
    ]


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"store": True}, "store"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "function", "name": "nobody"}}, "tool_choice"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0]"),
        ({"input": ["Hello"]}, "input[0]"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"truncation": "some"}, "truncation"),
        ({"text": {"verbosity": "low"}}, "text"),
        ({"n": 2}, "n"),
    ],
)
async def test_what_cannot_be_done_here_is_refused_by_its_name(
    http: httpx2.AsyncClient, asked: dict[str, Any], param: str
) -> None:
    refused = await http.post("/v1/responses", json=ASKED | asked)
    assert refused.status_code == 400, refused.text
    error = refused.json()["error"]
    assert error["param"].startswith(param)
    if param in ("previous_response_id", "conversation"):
        assert "Send the conversation in `input`" in error["message"]


async def test_a_ticket_is_given_to_who_does_not_wait(http: httpx2.AsyncClient) -> None:
    headers = {"Idempotency-Key": secrets.token_hex(8)}
    ticket = await http.post(
        "/v1/responses", json=ASKED, headers=headers | {"Prefer": "respond-async"}
    )
    assert ticket.status_code == 202
    known = await http.post("/v1/responses", json=ASKED, headers=headers)
    assert known.headers["Idempotent-Replayed"] == "true"
    assert known.json()["id"] == f"resp_{ticket.json()['job_id']}"


async def test_a_stream_is_resumed_after_the_event_that_came_last(
    http: httpx2.AsyncClient,
) -> None:
    headers = {"Idempotency-Key": secrets.token_hex(8)}
    asked = ASKED | {"stream": True}
    whole = (await http.post("/v1/responses", json=asked, headers=headers)).text
    ids = [line for line in whole.split("\n") if line.startswith("id: ")]
    before, mark, after = whole.partition(ids[3] + "\n")
    assert mark
    after = after.partition("\n\n")[2]
    again = await http.post(
        "/v1/responses", json=asked, headers=headers | {"Last-Event-ID": ids[3][4:]}
    )
    assert again.text == after
    assert before


async def test_what_breaks_a_stream_is_its_last_event(
    talk: Talking, client: openai.AsyncOpenAI
) -> None:
    talk.upstream.plan(Fault("hang", path="/api/chat", after_tokens=4))
    stream = await client.responses.create(**ASKED, stream=True)
    events: list[Any] = [await anext(stream)]
    cancelled = await talk.deployment.http.post(f"{stream.response.headers['Location']}/cancel")
    assert cancelled.status_code == 202
    events += [event async for event in stream]
    talk.upstream.clear_faults()
    assert events[-1].type == "error"
    assert events[-1].code == "cancelled"
