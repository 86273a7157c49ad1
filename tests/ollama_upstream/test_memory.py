"""Models are loaded, kept, evicted and waited for as Ollama does it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import ollama
import pytest

from examples.ollama_upstream import Fault, OllamaUpstream
from tests.ollama_upstream.questions import user
from tests.waiting import eventually_async

A, B, C = (f"{name}:latest" for name in "abc")


def to(upstream: OllamaUpstream) -> ollama.AsyncClient:
    return ollama.AsyncClient(upstream.url, trust_env=False)


async def test_the_least_recently_used_model_makes_room() -> None:
    async with OllamaUpstream(["a", "b", "c"], tokens_per_second=0, max_loaded=2) as upstream:
        for model in "abac":
            await to(upstream).chat(model, user())
        assert sorted(upstream.memory.resident()) == [A, C]
        assert (upstream.seen.loads, upstream.seen.swaps) == ({A: 1, B: 1, C: 1}, 1)


async def test_a_model_in_use_is_not_evicted_and_the_next_one_waits() -> None:
    async with OllamaUpstream(["a", "b"], tokens_per_second=0) as upstream:
        upstream.plan(Fault("hang", model=A))
        first = asyncio.create_task(to(upstream).chat("a", user()))
        await _until(lambda: upstream.seen.running == 1)
        second = asyncio.create_task(to(upstream).chat("b", user()))
        await _until(lambda: upstream.seen.paths["/api/chat"] == 2)
        assert upstream.memory.resident() == [A]
        upstream.clear_faults()
        assert [(await each).done_reason for each in (first, second)] == ["stop", "stop"]
        assert upstream.memory.resident() == [B]


async def test_a_model_that_is_being_loaded_is_listed_already() -> None:
    async with OllamaUpstream(["a"], load_seconds=3_600) as upstream:
        asking = asyncio.create_task(to(upstream).chat("a", user()))
        await _until(lambda: upstream.seen.loads[A] == 1)
        assert [model.name for model in (await to(upstream).ps()).models] == [A]
        assert upstream.memory.resident() == []
        asking.cancel()


async def test_keep_alive_zero_unloads_after_the_answer() -> None:
    async with OllamaUpstream(["a"], tokens_per_second=0) as upstream:
        assert (await to(upstream).chat("a", user(), keep_alive=0)).done
        await _until(lambda: upstream.memory.resident() == [])
        assert (await to(upstream).ps()).models == []


async def test_as_many_answers_at_once_as_it_is_told_and_the_queue_is_bounded() -> None:
    async with OllamaUpstream(["a"], tokens_per_second=0, parallel=2, max_queue=1) as upstream:
        upstream.plan(Fault("hang", times=None))
        asking = [asyncio.create_task(to(upstream).chat("a", user())) for _ in range(2)]
        await _until(lambda: upstream.seen.running == 2)
        asking.append(asyncio.create_task(to(upstream).chat("a", user())))
        await _until(lambda: upstream.seen.paths["/api/chat"] == 3)
        with pytest.raises(ollama.ResponseError, match="server busy, please try again") as busy:
            await to(upstream).chat("a", user())
        assert (busy.value.status_code, upstream.seen.refused_busy) == (503, 1)
        upstream.clear_faults()
        assert all([(await each).done for each in asking])
        assert upstream.seen.peak_running == 2


async def _until(condition: Callable[[], bool]) -> None:
    async def holds() -> bool:
        return condition()

    await eventually_async(holds, "the upstream is so far")
