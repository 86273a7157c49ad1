from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

import coatcheck.client
from coatcheck.client import AsyncClient, Client, Event
from coatcheck.client._async import exchange as async_exchange
from coatcheck.client._sync import exchange as sync_exchange
from tests.client.cases import END_EVENT, JOB_ID, JOB_URL, TICKET, cases
from tests.client.conftest import Connect


def shown(event: Event) -> list[Any]:
    """An event, as the cases spell it."""
    match event.name:
        case "state" | "end":
            return [event.name, event.data["status"], event.id]
        case "log":
            return [event.name, event.data["message"], event.id]
        case "chunk" if isinstance(event.data, bytes):
            return [event.name, {"bytes": base64.b64encode(event.data).decode()}, event.id]
        case _:
            return [event.name, event.data, event.id]


@cases("streams")
async def test_a_stream_shows_everything_once(
    connect: Connect, scripted: Any, case: dict[str, Any]
) -> None:
    server = await scripted(*(connection["answer"] for connection in case["connections"]))
    client = connect(server.url, retries=4)
    seen: list[list[Any]] = []
    raised: Exception | None = None
    try:
        async for event in client.events(JOB_ID, service="docs", after=case.get("after")):
            seen.append(shown(event))  # noqa: PERF401 - what came before an error counts
    except coatcheck.client.ClientError as error:
        raised = error
    assert seen == case["events"]
    assert type(raised).__name__ == case.get("error", "NoneType")
    assert client.pauses == pytest.approx(case["pauses"])
    resumed = [asked.headers.get("last-event-id") for asked in server.asked]
    assert resumed == [connection["last_event_id"] for connection in case["connections"]]
    assert {asked.target for asked in server.asked} == {f"{JOB_URL}/events"}


async def test_a_job_is_brought_up_to_date_by_its_stream(connect: Connect, scripted: Any) -> None:
    server = await scripted({"status": 202, "json": TICKET}, {"events": [END_EVENT]})
    client = connect(server.url)
    handle = await client.submit("docs", "analyze")
    assert [event.name for event in await client.stream(handle)] == ["end"]
    assert (handle.status, handle.terminal) == ("completed", True)


async def test_a_quiet_stream_may_be_cut_as_often_as_a_proxy_likes(
    connect: Connect, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that held for a while did not fail, though it had nothing to say."""
    monkeypatch.setattr(async_exchange, "STEADY_SECONDS", 0.0)
    monkeypatch.setattr(sync_exchange, "STEADY_SECONDS", 0.0)
    cut = {"events": [": still here\n\n"], "then": "cut"}
    server = await scripted(*[cut] * 8, {"events": [END_EVENT]})
    client = connect(server.url, retries=1)
    assert len(await client.stream(JOB_ID, service="docs")) == 1
    assert len(server.asked) == 9


async def test_a_stream_that_falls_silent_is_made_again(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_exchange, "SILENCE_SECONDS_MAX", 0.05)
    monkeypatch.setattr(sync_exchange, "SILENCE_SECONDS_MAX", 0.05)
    connections = 0
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        if connections > 1:
            writer.write(END_EVENT.encode())
        else:
            await ended.wait()  # says nothing, as a server behind a dead network does
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        client = connect(f"http://127.0.0.1:{port}")
        events = await client.stream(JOB_ID, service="docs")
        ended.set()
    assert [event.name for event in events] == ["end"]
    assert connections >= 2


async def test_a_large_result_fits_the_last_event(connect: Connect, scripted: Any) -> None:
    result = "x" * (4 * 1024 * 1024)
    server = await scripted({"events": [END_EVENT.replace("1}", f'"{result}"}}')]})
    (event,) = await connect(server.url).stream(JOB_ID, service="docs")
    assert event.data["result_summary"] == result


async def test_a_reader_that_has_seen_enough_can_leave(scripted: Any) -> None:
    pieces = ["id: 1\nevent: log\ndata: {}\n\n", "id: 2\nevent: log\ndata: {}\n\n"]
    server = await scripted({"events": pieces}, {"events": [END_EVENT]})
    async with AsyncClient(server.url, "t") as client:
        events = client.stream(JOB_ID, service="docs")
        first = await anext(events)
        await events.aclose()
        (rest,) = [event async for event in client.stream(JOB_ID, first.id, service="docs")]
    assert rest.name == "end"
    assert server.asked[1].headers["last-event-id"] == "1"


def test_an_id_without_a_service_is_refused_before_anything_is_sent() -> None:
    with Client("http://127.0.0.1:9") as client:
        with pytest.raises(ValueError, match="service="):
            client.stream(JOB_ID)
        with pytest.raises(ValueError, match="service="):
            client.get(JOB_ID)
