"""What frameworks on OpenAI's package send by default: structured output by way of a call.

The requests are those of instructor (a function that tool_choice names) and of pydantic-ai
(``required``, strict schemas, on chat completions or on responses), headers included.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from tests.databases import Databases
from tests.products.llm.talking import MODEL, Talking, talking

pytestmark = pytest.mark.asyncio(loop_scope="module")

STAINLESS = {
    "Accept": "application/json",
    "X-Stainless-Lang": "python",
    "X-Stainless-Package-Version": "3.3.0",
    "X-Stainless-Os": "Linux",
    "X-Stainless-Arch": "x64",
    "X-Stainless-Runtime": "CPython",
    "X-Stainless-Runtime-Version": "3.11.7",
    "X-Stainless-Async": "async:asyncio",
    "X-Stainless-Retry-Count": "0",
    "X-Stainless-Read-Timeout": "600",
}
ASKED = [{"role": "user", "content": "Ada is 36, of London"}]
PLACE = {
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "type": "object",
    "additionalProperties": False,
}
PERSON = {
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "home": {"$ref": "#/$defs/Place"},
    },
    "required": ["name", "age", "home"],
    "type": "object",
    "additionalProperties": False,
    "$defs": {"Place": PLACE},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talk(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Talking]:
    async with (
        databases.fresh() as dsn,
        talking(dsn, tmp_path_factory.mktemp("deployment")) as opened,
    ):
        yield opened


@pytest.fixture
def http(talk: Talking) -> httpx2.AsyncClient:
    return talk.deployment.http


def function(name: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    described = {"name": name, "description": "What was found.", "parameters": schema} | more
    return {"type": "function", "function": described}


def flat(tool: dict[str, Any]) -> dict[str, Any]:
    """A function as the Responses API has it."""
    return {"type": "function"} | tool["function"]


async def posted(http: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await http.post(path, json={"model": MODEL} | body, headers=STAINLESS)
    assert answer.status_code == 200, answer.text
    read: dict[str, Any] = answer.json()
    return read


def assert_person(arguments: str) -> None:
    person = json.loads(arguments)
    assert set(person) == {"name", "age", "home"}
    assert isinstance(person["age"], int)
    assert set(person["home"]) == {"city", "people"}


async def test_instructors_default_names_the_function_that_the_answer_is(
    http: httpx2.AsyncClient,
) -> None:
    body = {
        "messages": ASKED,
        "tools": [function("Person", PERSON)],
        "tool_choice": {"type": "function", "function": {"name": "Person"}},
    }
    answer = await posted(http, "/v1/chat/completions", body)
    (choice,) = answer["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert (call["type"], call["function"]["name"]) == ("function", "Person")
    assert_person(call["function"]["arguments"])
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "tool_calls"


async def test_instructors_partial_answers_grow_piece_by_piece(http: httpx2.AsyncClient) -> None:
    body = {
        "messages": ASKED,
        "model": MODEL,
        "stream": True,
        "tools": [function("PartialPerson", PERSON)],
        "tool_choice": {"type": "function", "function": {"name": "PartialPerson"}},
    }
    answer = await http.post("/v1/chat/completions", json=body, headers=STAINLESS)
    lines = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    calls = [
        call
        for line in lines
        for call in json.loads(line)["choices"][0]["delta"].get("tool_calls", [])
    ]
    assert len(calls) > 3
    assert calls[0]["function"]["name"] == "PartialPerson"
    assert calls[0]["id"]
    assert_person("".join(call["function"].get("arguments", "") for call in calls))


async def test_pydantic_ais_default_is_a_call_of_any_of_its_output_functions(
    http: httpx2.AsyncClient,
) -> None:
    tools = [
        function("final_result_Person", PERSON, strict=True),
        function("final_result_Place", PLACE, strict=True),
    ]
    body = {"messages": ASKED, "stream": False, "tools": tools, "tool_choice": "required"}
    chat = await posted(http, "/v1/chat/completions", body)
    (call,) = chat["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "final_result_Person"
    assert_person(call["function"]["arguments"])
    response = await posted(
        http,
        "/v1/responses",
        {
            "input": ASKED,
            "stream": False,
            "tools": [flat(each) for each in tools],
            "tool_choice": "required",
            "include": ["reasoning.encrypted_content"],
        },
    )
    (item,) = response["output"]
    assert (item["type"], item["name"]) == ("function_call", "final_result_Person")
    assert_person(item["arguments"])


async def test_pydantic_ais_functions_are_called_before_its_result_is_given(
    talk: Talking, http: httpx2.AsyncClient
) -> None:
    """The second request of a run: the first call, its answer, and again a call that must be."""
    look_up = function("look_up", {"type": "object", "properties": {"who": {"type": "string"}}})
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "look_up", "arguments": '{"who": "Ada"}'},
    }
    messages = [
        {"role": "system", "content": "Be exact."},
        *ASKED,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "36"},
    ]
    body = {
        "messages": messages,
        "tools": [function("final_result", PERSON, strict=True), look_up],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "temperature": 0.1,
    }
    answer = await posted(http, "/v1/chat/completions", body)
    (made,) = answer["choices"][0]["message"]["tool_calls"]
    assert made["function"]["name"] == "final_result"
    sent = json.loads(talk.upstream.seen.bodies("/api/chat")[-1])
    assert [message["role"] for message in sent["messages"]] == [
        *("system", "user", "assistant", "tool")
    ]
    assert sent["messages"][0]["content"].startswith("Be exact.\n\n")
    assert "look_up" in sent["messages"][0]["content"]


async def test_a_native_schema_is_what_the_answer_is_held_to(http: httpx2.AsyncClient) -> None:
    schema = {"name": "Person", "schema": PERSON, "strict": True}
    body = {
        "messages": ASKED,
        "stream": False,
        "response_format": {"type": "json_schema", "json_schema": schema},
    }
    chat = await posted(http, "/v1/chat/completions", body)
    assert_person(chat["choices"][0]["message"]["content"])
    response = await posted(
        http,
        "/v1/responses",
        {"input": ASKED, "text": {"format": {"type": "json_schema", **schema}}},
    )
    assert_person(response["output"][0]["content"][0]["text"])
