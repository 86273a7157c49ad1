"""A job's events as they come: states, progress, log lines, output."""

from __future__ import annotations

import asyncio

import pytest

from coatcheck.http import event_stream
from tests.deployment import Deployment
from tests.products.gateway.asking import end_of, hand_in
from tests.products.gateway.docs_service import gates
from tests.products.gateway.sse import Event, following
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_ended_job_tells_its_story_and_the_stream_closes(shared: Deployment) -> None:
    ticket = await hand_in(shared.http, "/talk", {"lines": 2})
    job = await end_of(shared.http, ticket)
    async with following(shared.http, ticket["events_url"]) as stream:
        assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream")
        assert stream.headers["cache-control"] == "no-store"
        first = await stream.next()
        assert first is not None
        assert first.retry == 1000
        events = await stream.rest()
    assert [event.name for event in events] == ["log", "chunk", "log", "chunk", "progress", "end"]
    assert [event.data["message"] for event in events if event.name == "log"] == [
        "line 0",
        "line 1",
    ]
    assert chunks(events) == ["chunk 0", "chunk 1"]
    assert events[-2].data == {"fraction": 1.0, "note": "2 of 2"}
    assert events[-1].data == job


async def test_a_running_job_is_followed_state_by_state(shared: Deployment, gate: str) -> None:
    ticket = await hand_in(shared.http, "/linger", {"gate": gate})
    await gates.begun[gate].wait()
    async with following(shared.http, ticket["events_url"]) as stream:
        (first,) = await stream.until("state")
        assert first.data["id"] == ticket["job_id"]
        assert first.data["status"] in ("dispatching", "processing")
        gates.opened[gate].set()
        progress = (await stream.until("progress"))[-1]
        assert progress.data == {"fraction": 0.5, "note": "half of it"}
        await shared.http.post(ticket["cancel_url"])
        while (await stream.until("state"))[-1].data["status"] != "cancel_requested":
            pass
        gates.opened[f"{gate}: end"].set()
        *_, end = await stream.rest()
    assert (end.name, end.data["status"], end.data["terminal"]) == ("end", "cancelled", True)


async def test_output_arrives_while_the_job_runs(shared: Deployment, gate: str) -> None:
    ticket = await hand_in(shared.http, "/recite", {"gate": gate, "lines": 2})
    async with following(shared.http, ticket["events_url"]) as stream:
        seen: list[Event] = []
        while len(chunks(seen)) < 2:
            seen += await stream.until("chunk")
        gates.opened[gate].set()
        seen += await stream.rest()
    assert chunks(seen) == [0, 1, 2, 3]


async def test_text_json_and_binary_output(shared: Deployment) -> None:
    ticket = await hand_in(shared.http, "/chunks")
    await end_of(shared.http, ticket)
    async with following(shared.http, ticket["events_url"]) as stream:
        events = await stream.rest()
    assert [event.data for event in events[:3]] == [
        {"kind": "text", "data": "two\nlines"},
        {"kind": "json", "data": {"token": "a", "n": 1.0}},
        {"kind": "binary", "data": "AP8="},
    ]
    log = events[3]
    assert log.name == "log"
    assert log.data["at"].endswith("Z")
    assert {"message": "beware", "level": "warning"}.items() <= log.data.items()
    assert log.data["fields"] == {"page": 3}


async def test_a_long_story_is_told_whole(shared: Deployment) -> None:
    ticket = await hand_in(shared.http, "/talk", {"lines": 120})
    await end_of(shared.http, ticket)
    async with following(shared.http, ticket["events_url"]) as stream:
        events = await stream.rest()
    assert chunks(events) == [f"chunk {number}" for number in range(120)]


async def test_a_stream_with_nothing_to_say_shows_that_it_lives(
    shared: Deployment, gate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert event_stream.KEEP_ALIVE_SECONDS == 15
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_SECONDS", 0.05)
    ticket = await hand_in(shared.http, "/held", {"gate": gate})
    async with following(shared.http, ticket["events_url"]) as stream:
        comments = 0
        while comments < 2:
            event = await stream.next()
            assert event is not None
            comments += event.comment is not None
        gates.opened[gate].set()
        assert (await stream.rest())[-1].name == "end"


async def test_nobody_follows_a_job_for_a_reader_who_has_gone(
    shared: Deployment, gate: str
) -> None:
    ticket = await hand_in(shared.http, "/held", {"gate": gate})
    before = followers()
    async with following(shared.http, ticket["events_url"]) as stream:
        await stream.until("state")
        assert followers() > before

    async def gone() -> bool:
        return followers() == before

    await eventually_async(gone, "the stream's task has ended")
    gates.opened[gate].set()


async def test_a_head_request_follows_nothing(shared: Deployment, gate: str) -> None:
    ticket = await hand_in(shared.http, "/held", {"gate": gate})
    answer = await shared.http.head(ticket["events_url"])
    gates.opened[gate].set()
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == "text/event-stream"


def chunks(events: list[Event]) -> list[object]:
    return [event.data["data"] for event in events if event.name == "chunk"]


def followers() -> int:
    """How many of this process's tasks send a stream."""
    return sum("StreamResponse.send" in repr(task.get_coro()) for task in asyncio.all_tasks())
