"""The real ``ollama`` package against Coatcheck: nothing but its base URL and a key was changed."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import ollama
import pytest
import pytest_asyncio

from tests.databases import Databases
from tests.deployment import bearer
from tests.products.llm.talking import MODEL, TOKEN, Talking, aside, talking

pytestmark = pytest.mark.asyncio(loop_scope="module")

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


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
def client(talk: Talking) -> ollama.AsyncClient:
    return talk.ollama()


@pytest.fixture
def direct(talk: Talking) -> ollama.AsyncClient:
    """The same package, asking the upstream itself."""
    return ollama.AsyncClient(host=talk.upstream.url, headers=bearer(TOKEN))


def asks(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
      a: one of them
      b: the other
    """
    return a + b


def without_times(answer: ollama.ChatResponse | ollama.GenerateResponse) -> dict[str, Any]:
    told = answer.model_dump()
    return {
        name: value
        for name, value in told.items()
        if name != "created_at" and not name.endswith("_duration")
    }


async def test_a_chat_is_answered_as_by_the_upstream_itself(
    client: ollama.AsyncClient, direct: ollama.AsyncClient
) -> None:
    options = {"num_predict": 5, "temperature": 0.2}
    through = await client.chat(MODEL, asks("Well?"), options=options, keep_alive="10m")
    straight = await direct.chat(MODEL, asks("Well?"), options=options, keep_alive="10m")
    assert without_times(through) == without_times(straight)
    assert through.done_reason == "length"


async def test_a_streamed_chat_comes_object_by_object_as_the_upstream_sent_them(
    client: ollama.AsyncClient, direct: ollama.AsyncClient
) -> None:
    through = [each async for each in await client.chat(MODEL, asks("Well?"), stream=True)]
    straight = [each async for each in await direct.chat(MODEL, asks("Well?"), stream=True)]
    assert list(map(without_times, through)) == list(map(without_times, straight))
    assert [each.done for each in through[-2:]] == [False, True]


async def test_the_synchronous_client_works_as_well(talk: Talking) -> None:
    def converse() -> tuple[str, str]:
        with ollama.Client(host=talk.url(), headers=bearer(talk.deployment.key)) as client:
            whole = client.chat(MODEL, asks("Hello")).message.content
            parts = client.chat(MODEL, asks("Hello"), stream=True)
            return whole or "", "".join(part.message.content or "" for part in parts)

    whole, streamed = await aside(converse)
    assert whole == streamed != ""


async def test_a_tool_is_called_and_its_answer_taken(client: ollama.AsyncClient) -> None:
    messages: list[Any] = asks("What is two and three?")
    called = await client.chat(MODEL, messages, tools=[add])
    (call,) = called.message.tool_calls or []
    assert call.function.name == "add"
    assert set(call.function.arguments) <= {"a", "b"}
    messages += [called.message, {"role": "tool", "tool_name": "add", "content": "5"}]
    answered = await client.chat(MODEL, messages, tools=[add])
    assert answered.message.content
    assert not answered.message.tool_calls


async def test_a_streamed_tool_call_is_whole(client: ollama.AsyncClient) -> None:
    parts = [each async for each in await client.chat(MODEL, asks("Add"), tools=[add], stream=True)]
    calls = [call for part in parts for call in part.message.tool_calls or []]
    assert [call.function.name for call in calls] == ["add"]


async def test_an_image_is_sent_along(
    talk: Talking, client: ollama.AsyncClient, direct: ollama.AsyncClient
) -> None:
    seen = [{"role": "user", "content": "What is this?", "images": [PIXEL]}]
    through = await client.chat("llava", seen)
    sent = json.loads(talk.upstream.seen.bodies("/api/chat")[-1])
    assert base64.b64decode(sent["messages"][0]["images"][0]) == PIXEL
    assert without_times(through) == without_times(await direct.chat("llava", seen))


async def test_images_may_be_larger_than_other_bodies(
    talk: Talking, client: ollama.AsyncClient
) -> None:
    large = PIXEL + bytes(3 * 1024 * 1024)
    seen = [{"role": "user", "content": "What is this?", "images": [large]}]
    assert (await client.chat("llava", seen)).done
    sent = json.loads(talk.upstream.seen.bodies("/api/chat")[-1])
    assert base64.b64decode(sent["messages"][0]["images"][0]) == large


async def test_a_body_is_taken_for_json_whatever_it_says_it_is(talk: Talking) -> None:
    """Ollama's own examples are for curl, which calls it a form."""
    body = json.dumps({"model": MODEL, "messages": asks("Hello"), "stream": False})
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for path in ("/api/chat", "/v1/chat/completions"):
        answer = await talk.deployment.http.post(path, content=body, headers=form)
        assert answer.status_code == 200, answer.text


async def test_an_answer_has_the_shape_of_the_schema(client: ollama.AsyncClient) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    }
    answer = await client.chat(MODEL, asks("Who?"), format=schema)
    told = json.loads(answer.message.content or "")
    assert isinstance(told["name"], str)
    assert isinstance(told["age"], int)


async def test_thoughts_are_told_apart(client: ollama.AsyncClient) -> None:
    whole = await client.chat("qwen3:8b", asks("Hm?"), think=True)
    assert whole.message.thinking
    parts = [
        each async for each in await client.chat("qwen3:8b", asks("Hm?"), think=True, stream=True)
    ]
    assert "".join(part.message.thinking or "" for part in parts) == whole.message.thinking


async def test_a_prompt_is_completed_whole_and_streamed(
    client: ollama.AsyncClient, direct: ollama.AsyncClient
) -> None:
    whole = await client.generate(MODEL, "Once upon a time")
    assert without_times(whole) == without_times(await direct.generate(MODEL, "Once upon a time"))
    parts = [each async for each in await client.generate(MODEL, "Once upon a time", stream=True)]
    assert "".join(part.response or "" for part in parts) == whole.response


async def test_a_picture_that_no_chunk_can_hold_is_in_the_last_object(
    client: ollama.AsyncClient,
) -> None:
    options: dict[str, Any] = {"width": 512, "height": 512, "steps": 2}
    model = "x/z-image-turbo"
    parts = [each async for each in await client.generate(model, "A cat", stream=True, **options)]
    whole = await client.generate(model, "A cat", **options)
    assert whole.image is not None
    assert len(whole.image) > 256 * 1024
    assert parts[-1].done
    assert parts[-1].image == whole.image


async def test_a_model_can_be_loaded_by_asking_it_nothing(client: ollama.AsyncClient) -> None:
    loaded = await client.chat(MODEL, [], keep_alive="10m")
    assert (loaded.done, loaded.done_reason) == (True, "load")
    parts = [each async for each in await client.generate(MODEL, stream=True)]
    assert [part.done_reason for part in parts] == ["load"]


async def test_models_are_listed_shown_and_seen_at_work(
    client: ollama.AsyncClient, direct: ollama.AsyncClient
) -> None:
    await client.chat(MODEL, asks("Hello"))
    assert await client.list() == await direct.list()
    assert await client.show(MODEL) == await direct.show(MODEL)
    running = [each.model for each in (await client.ps()).models]
    assert f"{MODEL}:latest" in running
    assert running == [each.model for each in (await direct.ps()).models]


async def test_texts_are_embedded(client: ollama.AsyncClient, direct: ollama.AsyncClient) -> None:
    texts = ["one", "two"]
    through = await client.embed("nomic-embed-text", texts)
    assert through.embeddings == (await direct.embed("nomic-embed-text", texts)).embeddings
    older = await client.embeddings("nomic-embed-text", "one")
    assert older == await direct.embeddings("nomic-embed-text", "one")


async def test_an_unknown_model_is_not_found_however_it_is_asked_for(
    client: ollama.AsyncClient,
) -> None:
    with pytest.raises(ollama.ResponseError, match="'nobody' not found") as whole:
        await client.chat("nobody", asks("Hello"))
    with pytest.raises(ollama.ResponseError) as streamed:
        [each async for each in await client.chat("nobody", asks("Hello"), stream=True)]
    with pytest.raises(ollama.ResponseError) as shown:
        await client.show("nobody")
    with pytest.raises(ollama.ResponseError) as embedded:
        await client.embed("nobody", "one")
    statuses = [each.value.status_code for each in (whole, streamed, shown, embedded)]
    assert statuses == [404] * 4


async def test_what_the_target_refuses_is_refused_in_its_words(client: ollama.AsyncClient) -> None:
    with pytest.raises(ollama.ResponseError, match="does not support tools") as refused:
        await client.chat("llava", asks("Add"), tools=[add])
    assert refused.value.status_code == 400


async def test_who_has_no_key_is_not_let_in(talk: Talking) -> None:
    stranger = talk.ollama(key="cck_0000000000000000_nothing")
    with pytest.raises(ollama.ResponseError, match="A valid credential is needed") as refused:
        await stranger.chat(MODEL, asks("Hello"))
    assert refused.value.status_code == 401
    with pytest.raises(ollama.ResponseError) as unlisted:
        await stranger.list()
    assert unlisted.value.status_code == 401


async def test_a_request_without_a_model_is_refused_before_it_is_a_job(talk: Talking) -> None:
    answer = await talk.deployment.http.post("/api/chat", json={"messages": asks("Hello")})
    assert answer.status_code == 400
    assert answer.json()["error"] == answer.json()["detail"]
    assert "X-Job-Id" not in answer.headers


async def test_every_field_reaches_the_target_as_it_was_written_and_nothing_of_ours_does(
    talk: Talking,
) -> None:
    body = (
        b'{"messages": [ {"content":"Hi", "role":"user","mood":1.50} ], "model":"llama3.2",'
        b'"options":{"temperature":1e-3,"num_predict":2},"unheard_of":[1,  2.0,null],'
        b'"webhook_url":"http://127.0.0.1:9/told","stream":false}'
    )
    answer = await talk.deployment.http.post("/api/chat", content=body)
    assert answer.status_code == 200
    (request,) = [each for each in talk.upstream.seen.requests if b"unheard_of" in each.body]
    assert b'"messages":[ {"content":"Hi", "role":"user","mood":1.50} ]' in request.body
    assert b'"options":{"temperature":1e-3,"num_predict":2}' in request.body
    assert b'"unheard_of":[1,  2.0,null]' in request.body
    assert b"webhook" not in request.body
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert talk.deployment.key not in str(request.headers)


async def test_answers_lead_to_their_jobs(talk: Talking) -> None:
    http = talk.deployment.http
    chat = {"model": MODEL, "messages": asks("Hello")}
    for stream in (False, True):
        answer = await http.post("/api/chat", json=chat | {"stream": stream})
        job = await http.get(answer.headers["Location"])
        assert job.json()["job_id"] == answer.headers["X-Job-Id"]
        assert job.json()["state"] == "done"
        last = answer.json() if not stream else json.loads(answer.text.splitlines()[-1])
        assert job.json()["result"]["eval_count"] == last["eval_count"]
        assert f'<{answer.headers["Location"]}/events>; rel="events"' in answer.headers["Link"]
