"""What goes wrong on demand, as a caller sees it."""

from __future__ import annotations

import json

import httpx
import httpx2
import ollama
import pytest

from examples.ollama_upstream import Fault, OllamaUpstream
from tests.ollama_upstream.questions import CHATTY, streamed, user
from tests.waiting import eventually_async


async def received(client: ollama.AsyncClient, error: type[Exception]) -> int:
    """How many objects came before ``error``."""
    count = 0
    with pytest.raises(error):  # noqa: PT012
        async for _ in await client.chat(CHATTY, user(), stream=True):
            count += 1
    return count


async def test_an_error_comes_with_its_status_and_headers_so_many_times(
    upstream: OllamaUpstream,
) -> None:
    upstream.plan(
        Fault("error", times=2, status=429, message="slow down", headers={"Retry-After": "7"})
    )
    async with httpx2.AsyncClient(base_url=upstream.url, trust_env=False) as http:
        answers = [await http.post("/api/chat", json={"model": CHATTY}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [429, 429, 200]
    assert answers[0].headers["retry-after"] == "7"
    assert answers[0].json() == {"error": "slow down"}
    assert upstream.seen.faults == {"error": 2}


async def test_an_error_in_the_stream_is_its_last_line(
    upstream: OllamaUpstream, client: ollama.AsyncClient
) -> None:
    upstream.plan(Fault("error_line", after_tokens=3))
    assert await received(client, ollama.ResponseError) == 3


async def test_a_cut_stream_ends_after_so_many_tokens(
    upstream: OllamaUpstream, client: ollama.AsyncClient
) -> None:
    for tokens in (4, 0):
        upstream.plan(Fault("cut", after_tokens=tokens))
        assert await received(client, httpx.RemoteProtocolError) == tokens
    assert (await streamed(client))[-1].done


async def test_a_stream_may_end_in_order_and_yet_early(
    upstream: OllamaUpstream, client: ollama.AsyncClient
) -> None:
    upstream.plan(Fault("early_end", after_tokens=2))
    assert [each.done for each in await streamed(client)] == [False, False]


async def test_garbage_is_no_json(upstream: OllamaUpstream, client: ollama.AsyncClient) -> None:
    upstream.plan(Fault("garbage", after_tokens=1))
    assert await received(client, json.JSONDecodeError) == 1


async def test_a_long_line_is_as_long_as_it_is_told(upstream: OllamaUpstream) -> None:
    upstream.plan(Fault("long_line", size_bytes=200_000))
    async with httpx2.AsyncClient(base_url=upstream.url, trust_env=False) as http:
        answer = await http.post("/api/chat", json={"model": CHATTY, "messages": user()})
    assert len(answer.content.split(b"\n")[0]) >= 200_000


async def test_what_hangs_goes_on_when_the_faults_are_cleared(upstream: OllamaUpstream) -> None:
    upstream.plan(Fault("hang", path="/api/version"))
    async with httpx2.AsyncClient(base_url=upstream.url, trust_env=False) as http:
        with pytest.raises(httpx2.ReadTimeout):
            await http.get("/api/version", timeout=httpx2.Timeout(None, read=0.05))
        upstream.plan(Fault("hang", path="/api/version", times=None))
        upstream.clear_faults()
        assert (await http.get("/api/version")).json()["version"]


async def test_a_caller_who_goes_stops_the_answer(
    upstream: OllamaUpstream, client: ollama.AsyncClient
) -> None:
    upstream.plan(Fault("endless"))
    async for _ in await client.chat(CHATTY, user(), stream=True):
        break

    async def stopped() -> bool:
        return upstream.seen.aborted == 1 and upstream.seen.running == 0

    await eventually_async(stopped, "the upstream noticed")
    (request,) = upstream.seen.requests
    assert request.aborted


async def test_it_goes_away_in_mid_stream_and_comes_back_on_its_port(
    upstream: OllamaUpstream, client: ollama.AsyncClient
) -> None:
    upstream.plan(Fault("go_away", after_tokens=2))
    assert await received(client, httpx.RemoteProtocolError) == 2
    with pytest.raises(httpx.ConnectError):
        await streamed(client)
    await upstream.come_back()
    assert (await streamed(client))[-1].done
    assert upstream.seen.loads == {"llama3.2:latest": 2}, "nothing was loaded after that"


async def test_a_token_is_asked_for_where_one_is_set() -> None:
    async with OllamaUpstream(token="secret") as upstream:
        anyone = ollama.AsyncClient(upstream.url, trust_env=False)
        with pytest.raises(ollama.ResponseError) as refused:
            await anyone.list()
        assert refused.value.status_code == 401
        bearer = {"Authorization": "Bearer secret"}
        assert (
            await ollama.AsyncClient(upstream.url, trust_env=False, headers=bearer).list()
        ).models


async def test_it_remembers_bodies_byte_for_byte(upstream: OllamaUpstream) -> None:
    body = b'{"model":"llama3.2",  "messages": [], "of_no_one": 1.50}'
    async with httpx2.AsyncClient(base_url=upstream.url, trust_env=False) as http:
        await http.post("/api/chat", content=body)
    assert upstream.seen.bodies("/api/chat") == [body]


async def test_it_is_steered_from_outside(upstream: OllamaUpstream) -> None:
    async with httpx2.AsyncClient(base_url=upstream.url, trust_env=False) as http:
        planned = {"kind": "error", "status": 500, "path": "/api/chat"}
        assert (await http.post("/control/faults", json=planned)).status_code == 200
        assert (await http.post("/api/chat", json={"model": CHATTY})).status_code == 500
        assert (await http.post("/control/faults", json={"kind": "odd"})).status_code == 400

        tuned = await http.patch("/control/tuning", json={"answer_tokens": 3})
        assert tuned.json()["answer_tokens"] == 3
        assert upstream.tuning.answer_tokens == 3

        seen = (await http.get("/control/seen")).json()
        assert (seen["paths"], seen["faults"]) == ({"/api/chat": 1}, {"error": 1})
        await http.delete("/control/seen")
        assert upstream.seen.paths == {}

        assert (await http.post("/control/go_away", json={"seconds": 0.2})).status_code == 202

        async def back() -> bool:
            try:
                return (await http.get("/api/version")).status_code == 200
            except httpx2.TransportError:
                return False

        await eventually_async(back, "it is back")
