"""Embeddings and completions of OpenAI's API, with the real ``openai`` package: jobs like chats."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest
import pytest_asyncio

from tests.databases import Databases
from tests.products.llm.talking import MODEL, Talking, talking

pytestmark = pytest.mark.asyncio(loop_scope="module")

EMBEDDER = "nomic-embed-text"


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


def close(one: list[float], other: list[float]) -> bool:
    return one == pytest.approx(other, abs=1e-6)


async def test_texts_are_embedded_as_a_job(talk: Talking, client: openai.AsyncOpenAI) -> None:
    """The package asks for base64 of its own accord, and for numbers if it is told to."""
    raw = await client.embeddings.with_raw_response.create(
        model=EMBEDDER, input=["one two", "three"], dimensions=16, user="somebody"
    )
    packed = raw.parse()
    plain = await client.embeddings.create(
        model=EMBEDDER, input=["one two", "three"], dimensions=16, encoding_format="float"
    )
    assert [each.index for each in packed.data] == [0, 1]
    for one, other in zip(packed.data, plain.data, strict=True):
        assert len(one.embedding) == 16
        assert close(one.embedding, other.embedding)
    assert packed.usage.total_tokens == packed.usage.prompt_tokens > 0
    job = (await talk.deployment.http.get(raw.headers["Location"])).json()
    assert (job["state"], job["model"]) == ("done", f"{EMBEDDER}:latest")
    assert close(job["result"]["embeddings"][0], packed.data[0].embedding)
    listed = (await talk.deployment.http.get("/jobs")).json()["items"]
    assert raw.headers["X-Job-Id"] in [each["job_id"] for each in listed]
    shown = await talk.deployment.http.get(f"/api/v1/orgs/default/jobs/{raw.headers['X-Job-Id']}")
    assert shown.status_code == 200
    assert EMBEDDER in shown.text


async def test_one_text_is_embedded(client: openai.AsyncOpenAI) -> None:
    answer = await client.embeddings.create(model=EMBEDDER, input="one two")
    (only,) = answer.data
    assert len(only.embedding) == 64


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"input": [[1, 2, 3]]}, "input"),
        ({"input": [1, 2, 3]}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": ""}, "input[0]"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "stream": True}, "stream"),
        ({}, "input"),
    ],
)
async def test_what_cannot_be_embedded_is_refused_by_its_name(
    http: httpx2.AsyncClient, asked: dict[str, Any], param: str
) -> None:
    refused = await http.post("/v1/embeddings", json={"model": EMBEDDER} | asked)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == param
    if isinstance(asked.get("input"), list) and asked["input"][:1] in ([1], [[1, 2, 3]]):
        assert "must be text" in refused.json()["error"]["message"]


async def test_a_model_that_does_not_embed_is_a_bad_request(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await client.embeddings.create(model="nobody", input="one")
    assert missing.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/embeddings", {"model": EMBEDDER, "input": "one"}),
        ("/v1/completions", {"model": MODEL, "prompt": "Hello"}),
    ],
)
async def test_keys_and_preferences_hold_as_for_chats(
    http: httpx2.AsyncClient, path: str, asked: dict[str, Any]
) -> None:
    headers = {"Idempotency-Key": secrets.token_hex(8)}
    ticket = await http.post(path, json=asked, headers=headers | {"Prefer": "respond-async"})
    assert ticket.status_code == 202
    assert int(ticket.headers["Retry-After"]) > 0
    known = await http.post(path, json=asked, headers=headers)
    assert known.status_code == 200
    assert known.headers["Idempotent-Replayed"] == "true"
    assert known.headers["X-Job-Id"] == ticket.json()["job_id"]
    other = await http.post(path, json=asked | {"user": "x", "keep_alive": "1m"}, headers=headers)
    assert other.headers["Idempotency-Mismatch"] == "true"


async def test_a_prompt_is_completed_as_a_job(talk: Talking, client: openai.AsyncOpenAI) -> None:
    raw = await client.completions.with_raw_response.create(
        model=MODEL, prompt="Hello", max_tokens=12, temperature=0.5, seed=7, user="somebody"
    )
    answer = raw.parse()
    (choice,) = answer.choices
    assert choice.text.startswith("You said: Hello")
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "length", None)
    assert answer.id == f"cmpl-{raw.headers['X-Job-Id']}"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    sent = json.loads(talk.upstream.seen.bodies("/api/generate")[-1])
    assert sent["options"] == {"temperature": 0.5, "seed": 7, "num_predict": 12}
    job = (await talk.deployment.http.get(raw.headers["Location"])).json()
    assert job["result"]["response"] == choice.text


async def test_a_streamed_completion_says_the_same(client: openai.AsyncOpenAI) -> None:
    whole = await client.completions.create(model=MODEL, prompt="Hello")
    stream = await client.completions.create(
        model=MODEL, prompt="Hello", stream=True, stream_options={"include_usage": True}
    )
    *parts, usage = [part async for part in stream]
    assert "".join(part.choices[0].text for part in parts) == whole.choices[0].text
    assert [part.choices[0].finish_reason for part in parts[-2:]] == [None, "stop"]
    assert (usage.choices, usage.usage) == ([], whole.usage)
    assert {part.object for part in parts} == {"text_completion"}


async def test_several_prompts_and_several_answers_of_each(client: openai.AsyncOpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": ["Red", "Blue"], "n": 2, "seed": 1}
    whole = await client.completions.create(**asked, echo=True)
    texts = [choice.text for choice in whole.choices]
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    assert [text.split("You said: ")[0] for text in texts] == ["Red", "Red", "Blue", "Blue"]
    assert len(set(texts)) == 4
    streamed = [""] * 4
    async for part in await client.completions.create(**asked, echo=True, stream=True):
        streamed[part.choices[0].index] += part.choices[0].text
    assert streamed == texts


async def test_a_completion_tells_how_likely_its_tokens_were(client: openai.AsyncOpenAI) -> None:
    whole = (await client.completions.create(model=MODEL, prompt="Hello", logprobs=2)).choices[0]
    told = whole.logprobs
    assert told is not None
    assert told.tokens is not None
    assert told.text_offset is not None
    assert "".join(told.tokens) == whole.text
    for token, offset in zip(told.tokens, told.text_offset, strict=True):
        assert whole.text[offset:].startswith(token)
    offsets: list[int] = []
    stream = await client.completions.create(model=MODEL, prompt="Hello", logprobs=2, stream=True)
    async for part in stream:
        if part.choices[0].logprobs is not None:
            offsets += part.choices[0].logprobs.text_offset or []
    assert offsets == told.text_offset


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"prompt": [[1, 2, 3]]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt[0]"),
        ({"prompt": ["a"] * 5, "n": 2}, "prompt"),
        ({"prompt": "a", "n": 9}, "n"),
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": "a", "logprobs": 6}, "logprobs"),
        ({"prompt": "a", "logprobs": 1, "echo": True}, "echo"),
        ({"prompt": "a", "logit_bias": {"1": 2}}, "logit_bias"),
        ({"prompt": "a", "messages": []}, "messages"),
        ({"prompt": "a", "max_completion_tokens": 5}, "max_completion_tokens"),
    ],
)
async def test_what_cannot_be_completed_is_refused_by_its_name(
    http: httpx2.AsyncClient, asked: dict[str, Any], param: str
) -> None:
    refused = await http.post("/v1/completions", json={"model": MODEL} | asked)
    assert refused.status_code == 400
    assert refused.headers["Content-Type"] == "application/json"
    assert refused.json()["error"]["param"] == param


HELLO: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "clock"}}


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/chat/completions", HELLO),
        ("/v1/completions", {"model": MODEL, "prompt": "Hello"}),
        ("/v1/responses", {"model": MODEL, "input": "Hello"}),
    ],
)
async def test_the_key_of_an_embedding_leads_to_no_answer_that_says_nothing(
    http: httpx2.AsyncClient, path: str, asked: dict[str, Any]
) -> None:
    headers = {"Idempotency-Key": secrets.token_hex(8)}
    made = await http.post(
        "/v1/embeddings", json={"model": EMBEDDER, "input": "x"}, headers=headers
    )
    assert made.status_code == 200
    known = await http.post(path, json=asked, headers=headers)
    assert (known.status_code, known.json()["code"]) == (502, "target_answer_invalid")
    assert known.headers["Idempotency-Mismatch"] == "true"
    streamed = await http.post(path, json=asked | {"stream": True}, headers=headers)
    assert "target_answer_invalid" in streamed.text
    assert "[DONE]" not in streamed.text


async def test_a_response_ends_once_if_its_key_leads_to_several_answers(
    http: httpx2.AsyncClient,
) -> None:
    headers = {"Idempotency-Key": secrets.token_hex(8)}
    made = await http.post("/v1/chat/completions", json=HELLO | {"n": 2}, headers=headers)
    assert len(made.json()["choices"]) == 2
    asked = {"model": MODEL, "input": "Hello"}
    whole = (await http.post("/v1/responses", json=asked, headers=headers)).json()
    streamed = await http.post("/v1/responses", json=asked | {"stream": True}, headers=headers)
    events = [json.loads(line[6:]) for line in streamed.text.splitlines() if line[:6] == "data: "]
    ends = [each for each in events if each["type"] == "response.completed"]
    assert ends == events[-1:]
    assert ends[0]["response"]["output"] == whole["output"]


async def test_who_goes_on_after_what_is_no_call_is_told_so(http: httpx2.AsyncClient) -> None:
    headers = {"Idempotency-Key": secrets.token_hex(8)}
    await http.post("/v1/chat/completions", json=HELLO, headers=headers)
    forced = HELLO | {"stream": True, "tools": [CLOCK], "tool_choice": "required"}
    known = await http.post(
        "/v1/chat/completions", json=forced, headers=headers | {"Last-Event-ID": "1000000"}
    )
    assert (known.status_code, known.json()["error"]["code"]) == (502, "tool_not_called")
    assert known.headers["x-should-retry"] == "false"
