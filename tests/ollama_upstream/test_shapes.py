"""The upstream's answers are Ollama's: the `ollama` package reads them with its own types.

The package ignores what it does not know and lets most fields be missing, so these tests also say
which have to be there.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from typing import Any

import httpx2
import ollama
import pytest

from examples.ollama_upstream import OllamaUpstream
from tests.ollama_upstream.questions import CHATTY, CLOCK, WEATHER, WHY, streamed, user

FIGURES = (
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
)


async def test_a_streamed_chat_is_the_whole_one_in_pieces(client: ollama.AsyncClient) -> None:
    whole = await client.chat(CHATTY, user())
    *pieces, last = await streamed(client)
    assert isinstance(whole, ollama.ChatResponse)
    assert "".join(piece.message.content or "" for piece in pieces) == whole.message.content
    assert WHY in (whole.message.content or "")
    assert {(piece.message.role, piece.done, piece.done_reason) for piece in pieces} == {
        ("assistant", False, None)
    }
    for end in (whole, last):
        assert (end.model, end.done, end.done_reason) == (CHATTY, True, "stop")
        assert all(getattr(end, figure) > 0 for figure in FIGURES)
    assert (last.message.content, last.eval_count) == ("", len(pieces))


async def test_the_synchronous_client_reads_it_as_well(upstream: OllamaUpstream) -> None:
    def ask() -> list[str]:
        client = ollama.Client(upstream.url, trust_env=False)
        return [piece.message.content or "" for piece in client.chat(CHATTY, user(), stream=True)]

    assert "".join(await asyncio.to_thread(ask)).startswith(f"You said: {WHY}")


async def test_generate_streams_and_answers_whole_with_its_context(
    client: ollama.AsyncClient,
) -> None:
    whole = await client.generate(CHATTY, WHY)
    *pieces, last = [each async for each in await client.generate(CHATTY, WHY, stream=True)]
    assert isinstance(whole, ollama.GenerateResponse)
    assert "".join(piece.response or "" for piece in pieces) == whole.response
    assert last.context == whole.context
    assert whole.context
    assert (last.done_reason, all(getattr(last, figure) > 0 for figure in FIGURES)) == (
        "stop",
        True,
    )
    assert (await client.generate(CHATTY, WHY, raw=True)).context is None


async def test_the_same_prompt_gets_the_same_answer_and_another_another(
    client: ollama.AsyncClient,
) -> None:
    first, again = [(await client.chat(CHATTY, user())).message.content for _ in range(2)]
    other_seed = await client.chat(CHATTY, user(), options={"seed": 7})
    other_prompt = await client.chat(CHATTY, user("Why is grass green?"))
    assert first == again
    assert len({first, other_seed.message.content, other_prompt.message.content}) == 3


async def test_num_predict_and_stop_end_an_answer(client: ollama.AsyncClient) -> None:
    *pieces, last = await streamed(client, options={"num_predict": 5})
    assert (len(pieces), last.done_reason, last.eval_count) == (5, "length", 5)
    stopped = await client.chat(CHATTY, user(), options={"stop": ["sky"]})
    assert (stopped.message.content, stopped.done_reason) == ("You said: Why is the ", "stop")


@pytest.mark.parametrize("stream", [True, False])
async def test_tools_are_called_and_their_answers_read(
    client: ollama.AsyncClient, stream: bool
) -> None:
    asked: dict[str, Any] = {"tools": [CLOCK, WEATHER]}
    question = user("What will the weather be in Toronto for 3 days?")
    if stream:
        answers = await streamed(client, messages=question, **asked)
        (message,) = [each.message for each in answers if each.message.tool_calls]
    else:
        message = (await client.chat(CHATTY, question, **asked)).message
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert call.function.name == "get_weather"
    assert call.function.arguments == {"city": "Toronto", "days": 3}

    told = {"role": "tool", "tool_name": "get_weather", "content": "11 degrees"}
    final = await client.chat(CHATTY, [*question, message, told], **asked)
    assert final.message.tool_calls is None
    assert (final.message.content or "").startswith("The tool says: 11 degrees")


async def test_format_json_is_an_object_and_a_schema_is_kept_to(client: ollama.AsyncClient) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "kind": {"enum": ["cat", "dog"]},
            "tags": {"type": "array", "items": {"type": "boolean"}},
        },
        "required": ["name", "age", "kind", "tags"],
    }
    anything = await client.generate(CHATTY, WHY, format="json")
    assert isinstance(json.loads(anything.response or ""), dict)
    shaped = await client.chat(CHATTY, user("It is Tom, who is 22"), format=schema)
    value = json.loads(shaped.message.content or "")
    assert (value["name"], value["age"]) == ("Tom", 22)
    assert value["kind"] in ("cat", "dog")
    assert all(isinstance(tag, bool) for tag in value["tags"])


async def test_a_thinking_model_thinks_first_unless_it_is_told_not_to(
    client: ollama.AsyncClient,
) -> None:
    answers = await streamed(client, model="qwen3:8b", think=True)
    thought = [bool(each.message.thinking) for each in answers]
    assert thought[0]
    assert thought == sorted(thought, reverse=True), "thoughts come before words"
    whole = await client.chat("qwen3:8b", user(), think=False)
    assert whole.message.thinking is None
    assert whole.message.content


async def test_images_reach_a_model_that_sees(client: ollama.AsyncClient) -> None:
    image = bytes(range(256))
    seen = f"256 bytes {hashlib.sha256(image).hexdigest()[:8]}"
    message = {"role": "user", "content": WHY, "images": [image]}
    assert seen in ((await client.chat("llava", [message])).message.content or "")
    assert seen in ((await client.generate("llava", WHY, images=[image])).response or "")


async def test_a_model_of_pictures_tells_its_steps_and_sends_a_png(
    client: ollama.AsyncClient,
) -> None:
    drawing = await client.generate(
        "x/z-image-turbo", WHY, width=20, height=10, steps=3, stream=True
    )
    answers = [each async for each in drawing]
    assert [(each.completed, each.total) for each in answers[:-1]] == [(1, 3), (2, 3), (3, 3)]
    picture = base64.b64decode(answers[-1].image or "")
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert (int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])) == (20, 10)


async def test_what_there_is_is_listed_and_shown(client: ollama.AsyncClient) -> None:
    listed = await client.list()
    assert isinstance(listed, ollama.ListResponse)
    assert listed.models[0].model == "llama3.2:latest"
    for model in listed.models:
        assert all((model.modified_at, model.digest, model.size, model.details))
    shown = await client.show("Llama3.2")
    assert isinstance(shown, ollama.ShowResponse)
    assert shown.capabilities == ["completion", "tools"]
    assert all((shown.modelinfo, shown.modelfile, shown.template, shown.details))


async def test_what_is_loaded_is_listed_until_it_expires(client: ollama.AsyncClient) -> None:
    assert (await client.ps()).models == []
    await client.generate(CHATTY, WHY, keep_alive="10m")
    listed = await client.ps()
    assert isinstance(listed, ollama.ProcessResponse)
    (model,) = listed.models
    assert (model.name, model.size_vram) == ("llama3.2:latest", model.size)
    assert model.expires_at is not None
    assert model.context_length


async def test_embeddings_are_unit_vectors_of_the_length_asked_for(
    client: ollama.AsyncClient,
) -> None:
    answer = await client.embed("nomic-embed-text", ["one two", "one two", "three"], dimensions=16)
    assert isinstance(answer, ollama.EmbedResponse)
    first, again, other = answer.embeddings
    assert first == again != other
    assert [len(vector) for vector in answer.embeddings] == [16, 16, 16]
    assert sum(each * each for each in first) == pytest.approx(1)
    older = await client.embeddings("nomic-embed-text", "one two")
    assert len(older.embedding) == 64
    assert (await client.embed("nomic-embed-text", [])).embeddings == []


@pytest.mark.parametrize(
    ("keep_alive", "reason"), [(None, "load"), (-1, "load"), (0, "unload"), ("0s", "unload")]
)
async def test_no_prompt_loads_a_model_or_unloads_it(
    upstream: OllamaUpstream, client: ollama.AsyncClient, keep_alive: Any, reason: str
) -> None:
    chat = await client.chat(CHATTY, [], keep_alive=keep_alive)
    assert (chat.done, chat.done_reason, chat.message.content) == (True, reason, "")
    generate = await client.generate(CHATTY, "", keep_alive=keep_alive)
    assert (generate.done, generate.done_reason, generate.response) == (True, reason, "")
    assert upstream.memory.resident() == (["llama3.2:latest"] if reason == "load" else [])


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({"model": "none", "messages": []}, 404, "model 'none' not found"),
        ({"model": "", "messages": []}, 400, "model is required"),
        ({"model": CHATTY, "messages": "hello"}, 400, "json: cannot unmarshal string into Go"),
        ({"model": CHATTY, "messages": user(), "think": True}, 400, "does not support thinking"),
        ({"model": "llava", "messages": user(), "tools": [CLOCK]}, 400, "does not support tools"),
        ({"model": "nomic-embed-text", "messages": user()}, 400, "does not support chat"),
        ({"model": CHATTY, "keep_alive": "soon"}, 400, 'time: invalid duration "soon"'),
        ({"model": CHATTY, "format": 3}, 400, "invalid format"),
    ],
)
async def test_what_cannot_be_is_refused_in_ollamas_words(
    upstream: OllamaUpstream, asked: dict[str, Any], status: int, words: str
) -> None:
    async with httpx2.AsyncClient(base_url=upstream.url, trust_env=False) as http:
        answer = await http.post("/api/chat", json=asked)
    assert answer.status_code == status
    assert words in answer.json()["error"]


async def test_the_package_raises_what_it_raises_for_ollama(client: ollama.AsyncClient) -> None:
    with pytest.raises(ollama.ResponseError) as refused:
        await streamed(client, model="none")
    assert (refused.value.status_code, refused.value.error) == (404, "model 'none' not found")
    with pytest.raises(ollama.ResponseError, match="try pulling it first"):
        await client.embed("none", "text")
