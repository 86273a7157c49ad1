"""Chats as jobs: what reaches the target, what is streamed, what is kept."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from coatcheck import State
from coatcheck.domain.lanes import Lane
from coatcheck.products.llm.repository import LlmRepository
from coatcheck.settings.targets import LlmTarget
from coatcheck.telemetry import metrics
from examples.ollama_upstream import OllamaUpstream
from tests.products.llm.chats import MODEL, Chats, text_of
from tests.waiting import eventually_async

PNG = b"\x89PNG\r\n\x1a\n"


@asynccontextmanager
async def chats_with(
    dsn: str, folder: Path, concurrency: int = 1, token: str = "", **tuning: Any
) -> AsyncIterator[tuple[Chats, OllamaUpstream]]:
    tuning = {"tokens_per_second": 0} | tuning
    async with (
        OllamaUpstream(token=token or None, **tuning) as upstream,
        Chats(dsn, folder, [LlmTarget("box", upstream.url, token, concurrency)]) as chats,
    ):
        await chats.work()
        yield chats, upstream


async def test_a_chat_is_streamed_as_the_target_says_it_and_kept_whole(
    dsn: str, tmp_path: Path
) -> None:
    async with chats_with(dsn, tmp_path) as (chats, _):
        ticket = await chats.submit("hello")
        answer = await chats.answer_of(ticket)
        chunks = await chats.chunks(ticket)
        assert [chunk["done"] for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert answer == chunks[-1] | {"message": {"role": "assistant", "content": text_of(chunks)}}
        assert answer["message"]["content"]
        view = await chats.engine.get(ticket.id)
        assert view.failures == view.unreachables == 0


async def test_a_generation_is_answered_whole_with_its_thoughts(dsn: str, tmp_path: Path) -> None:
    async with chats_with(dsn, tmp_path) as (chats, _):
        ticket = await chats.submit({"model": "qwen3:8b", "prompt": "why?"}, "generate")
        answer = await chats.answer_of(ticket)
        chunks = await chats.chunks(ticket)
        assert answer["response"] == "".join(chunk["response"] for chunk in chunks)
        assert answer["thinking"] == "".join(chunk.get("thinking", "") for chunk in chunks)
        assert answer["thinking"]
        assert answer["context"] == chunks[-1]["context"]


async def test_every_field_reaches_the_target_as_it_was_written(dsn: str, tmp_path: Path) -> None:
    body = (
        '{"model": "qwen3:8b",  "messages": [{"role": "user", "content": "caf\\u00e9 \\/ \U0001f600'
        '", "images": []}], "options": {"temperature": 0.10, "seed": 1e1, "num_predict": 3},'
        ' "keep_alive": "5m", "think": false, "format": {"type": "object"}, "tools": [],'
        ' "unknown_to_ollama": {"b": 1.50, "a": [null]}, "stream": true}'
    )
    async with chats_with(dsn, tmp_path, token="s3cr3t") as (chats, upstream):
        payload = f'{{"kind": "chat", "model": "qwen3:8b", "body": {body}}}'.encode()
        ticket = await chats.engine.submit("llm.post__chat", payload, queue_key="qwen3:8b")
        await chats.answer_of(ticket)
        [asked] = [each for each in upstream.seen.requests if each.path == "/api/chat"]
        assert asked.body == body.encode()
        assert asked.headers["authorization"] == "Bearer s3cr3t"
        assert asked.headers["content-type"] == "application/json"


async def test_a_tool_call_is_in_the_answer(dsn: str, tmp_path: Path) -> None:
    tool = {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "the weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    messages = [{"role": "user", "content": "call weather"}]
    async with chats_with(dsn, tmp_path) as (chats, _):
        ticket = await chats.submit({"model": MODEL, "messages": messages, "tools": [tool]})
        answer = await chats.answer_of(ticket)
        chunks = await chats.chunks(ticket)
        called = [call for each in chunks for call in each["message"].get("tool_calls", ())]
        assert called
        assert answer["message"]["tool_calls"] == called


async def test_an_image_is_kept_as_a_file_and_an_answer_that_is_long_beside_its_row(
    dsn: str, tmp_path: Path
) -> None:
    order = {"model": "x/z-image-turbo", "prompt": "a cat", "width": 640, "height": 640}
    async with chats_with(dsn, tmp_path) as (chats, _):
        ticket = await chats.submit(order, "generate")
        answer = await chats.answer_of(ticket)
        picture = await chats.artifact(ticket, "image-1.png")
        assert picture.startswith(PNG)
        assert base64.b64decode(answer["image"]) == picture
        kept = {each.name: each for each in await chats.engine.artifacts(ticket.id)}
        assert kept.keys() == {"image-1.png", "result.json"}
        assert kept["image-1.png"].media_type == "image/png"
        assert kept["result.json"].size > 256 * 1024
        # What is too long for a chunk is left out of the stream.
        assert all(not chunk["done"] for chunk in await chats.chunks(ticket))


async def test_loading_a_model_is_not_yet_work(dsn: str, tmp_path: Path) -> None:
    async with chats_with(dsn, tmp_path, load_seconds=600) as (chats, upstream):
        ticket = await chats.submit()

        async def asked() -> bool:
            return upstream.seen.paths["/api/chat"] == 1

        await eventually_async(asked, "the target was asked")
        view = await chats.engine.get(ticket.id)
        assert view.state is State.DISPATCHING
        assignment = await chats.engine.extension(LlmRepository).assignment("default", ticket.uuid)
        assert assignment is not None
        assert (assignment.target, assignment.loading, assignment.current) == ("box", True, True)
        await chats.engine.cancel(ticket.id)
        assert (await chats.end_of(ticket)).state is State.CANCELLED


async def test_a_model_that_is_loaded_is_worked_with_at_once(dsn: str, tmp_path: Path) -> None:
    async with chats_with(dsn, tmp_path) as (chats, upstream):
        await chats.answer_of(await chats.submit("the first loads it"))
        upstream.tuning.prompt_seconds = 600
        ticket = await chats.submit("the second does not")
        await chats.until(ticket, State.PROCESSING)
        assignment = await chats.engine.extension(LlmRepository).assignment("default", ticket.uuid)
        assert assignment is not None
        assert not assignment.loading
        assert await chats.chunks(ticket) == []
        assert upstream.seen.loads == {"llama3.2:latest": 1}


async def test_cancelling_stops_the_target(dsn: str, tmp_path: Path) -> None:
    async with chats_with(dsn, tmp_path, tokens_per_second=20, answer_tokens=10_000) as (
        chats,
        upstream,
    ):
        ticket = await chats.submit()
        await chats.until_streaming(ticket)
        assert b'coatcheck_llm_running{target="box"} 1.0' in metrics.exposition()
        await chats.engine.cancel(ticket.id)
        assert (await chats.end_of(ticket)).state is State.CANCELLED

        async def aborted() -> bool:
            return upstream.seen.aborted == 1 and upstream.seen.running == 0

        await eventually_async(aborted, "the target noticed")
        shown = metrics.exposition()
        assert b'coatcheck_llm_running{target="box"} 0.0' in shown
        assert b'coatcheck_llm_first_object_seconds_count{target="box"}' in shown


async def test_a_drain_spends_no_attempt_and_the_next_worker_begins_again(
    dsn: str, tmp_path: Path
) -> None:
    async with (
        OllamaUpstream(tokens_per_second=20, answer_tokens=40) as upstream,
        Chats(dsn, tmp_path, [LlmTarget("box", upstream.url)]) as chats,
    ):
        first = await chats.work()
        ticket = await chats.submit()
        await chats.until_streaming(ticket, 2)
        await chats.stop(first)
        assert upstream.seen.aborted == 1
        upstream.tuning.tokens_per_second = 0
        await chats.work()
        answer = await chats.answer_of(ticket)
        chunks = await chats.chunks(ticket)
        marks = [place for place, chunk in enumerate(chunks) if "coatcheck" in chunk]
        assert len(marks) == 1
        assert chunks[marks[0]] == {"coatcheck": {"restarted": True, "attempt": 1}}
        assert answer["message"]["content"] == text_of(chunks[marks[0] + 1 :])
        view = await chats.engine.get(ticket.id)
        assert (view.failures, view.crashes, view.interruptions) == (0, 0, 1)


async def test_a_drain_lets_a_chat_end_within_the_grace(dsn: str, tmp_path: Path) -> None:
    async with (
        OllamaUpstream(tokens_per_second=40, answer_tokens=20) as upstream,
        Chats(dsn, tmp_path, [LlmTarget("box", upstream.url)], drain_seconds=60) as chats,
    ):
        worker = await chats.work()
        ticket = await chats.submit()
        await chats.until_streaming(ticket)
        await chats.stop(worker)
        view = await chats.engine.get(ticket.id)
        assert (view.state, view.interruptions) == (State.COMPLETED, 0)
        assert upstream.seen.aborted == 0


async def test_no_more_than_its_places_at_a_time_over_all_workers(dsn: str, tmp_path: Path) -> None:
    async with chats_with(
        dsn, tmp_path, concurrency=2, tokens_per_second=100, answer_tokens=10, parallel=16
    ) as (chats, upstream):
        await chats.work()
        tickets = [
            await chats.submit(f"{number}", lane=Lane.URGENT if number % 2 else Lane.STANDARD)
            for number in range(8)
        ]
        for ticket in tickets:
            await chats.answer_of(ticket)
        assert upstream.seen.peak_running == 2


async def test_a_job_goes_to_the_target_that_has_its_model(dsn: str, tmp_path: Path) -> None:
    async with (
        OllamaUpstream(["one"], tokens_per_second=0) as first,
        OllamaUpstream(["two"], tokens_per_second=0) as second,
        Chats(dsn, tmp_path, [LlmTarget("a", first.url), LlmTarget("b", second.url)]) as chats,
    ):
        asked = [
            await chats.submit({"model": name, "messages": [{"role": "user", "content": "x"}]})
            for name in ("two", "one", "two:latest", "one:latest")
        ]
        await chats.work()  # they wait already: nothing is known of the targets yet
        for ticket in asked:
            await chats.answer_of(ticket)
        assert [json.loads(each)["model"] for each in second.seen.bodies("/api/chat")] == [
            "two",
            "two:latest",
        ]


@pytest.mark.parametrize("kind", ["chat", "generate"])
async def test_a_request_without_a_prompt_loads_the_model(
    dsn: str, tmp_path: Path, kind: Any
) -> None:
    async with chats_with(dsn, tmp_path) as (chats, upstream):
        answer = await chats.answer_of(await chats.submit({"model": MODEL}, kind))
        assert (answer["done"], answer["done_reason"]) == (True, "load")
        assert upstream.seen.loads == {"llama3.2:latest": 1}
