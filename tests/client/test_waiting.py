from __future__ import annotations

import re
from typing import Any

import pytest

from coatcheck.client import ConnectionFailed, WaitTimeout
from tests.client.cases import END_EVENT, JOB_ID, JOB_URL, TICKET, job
from tests.client.conftest import Connect

DONE = job("completed", result_summary={"entities": []}, completed_at="2026-01-31T12:00:05Z")


async def test_waiting_is_one_held_question_when_the_end_comes_in_time(
    connect: Connect, scripted: Any
) -> None:
    server = await scripted(
        {"status": 202, "json": TICKET}, {"json": DONE, "headers": {"ETag": "e"}}
    )
    client = connect(server.url)
    handle = await client.submit("docs", "analyze", {"content": "..."})
    assert (handle.result, handle.created_at) == (None, None)
    waited = await client.wait(handle)
    assert waited is handle
    assert (handle.status, handle.result, handle.etag) == ("completed", {"entities": []}, "e")
    assert handle.completed_at.isoformat() == "2026-01-31T12:00:05+00:00"
    assert server.asked[1].target == f"{JOB_URL}?wait=30"


async def test_waiting_goes_on_while_the_job_does(connect: Connect, scripted: Any) -> None:
    unended = {"status": 202, "json": job("processing", progress={"fraction": 0.5, "note": "x"})}
    server = await scripted(unended, unended, {"json": DONE})
    assert await connect(server.url).result(JOB_ID, service="docs") == {"entities": []}


async def test_a_server_that_does_not_hold_is_not_asked_in_a_busy_loop(
    connect: Connect, scripted: Any
) -> None:
    unended = {"status": 202, "json": job("processing")}
    server = await scripted(*[unended] * 6, {"json": DONE})
    client = connect(server.url)
    await client.wait(JOB_ID, service="docs")
    assert client.pauses == pytest.approx([0.3125, 0.625, 1.25, 2.5, 5.0, 10.0])


async def test_a_wait_that_is_over_names_the_job_as_it_is(connect: Connect, scripted: Any) -> None:
    server = await scripted({"status": 202, "json": job("processing")})
    with pytest.raises(WaitTimeout, match="is still processing after 0 s") as raised:
        await connect(server.url).wait(JOB_ID, 0, service="docs")
    assert raised.value.job.status == "processing"
    assert server.asked[0].target == f"{JOB_URL}?wait=0"


async def test_the_server_is_not_asked_to_hold_for_longer_than_the_caller_has(
    connect: Connect, scripted: Any
) -> None:
    server = await scripted({"json": DONE})
    await connect(server.url).wait(JOB_ID, 2.5, service="docs")
    held = re.fullmatch(r".*\?wait=([\d.]+)", server.asked[0].target)
    assert held
    assert 0 < float(held[1]) <= 2.5


async def test_an_answer_that_the_server_was_asked_to_hold_is_not_taken_for_silence(
    connect: Connect, scripted: Any
) -> None:
    held = {"json": DONE, "hold": 0.8}
    server = await scripted(held, held)
    client = connect(server.url, timeout=0.5, retries=0)
    assert (await client.submit("docs", "analyze", wait=5)).terminal
    assert (await client.wait(JOB_ID, 5, service="docs")).terminal


async def test_a_server_that_says_nothing_for_too_long_is_given_up(
    connect: Connect, scripted: Any
) -> None:
    server = await scripted({"json": DONE, "hold": 1})
    with pytest.raises(ConnectionFailed):
        await connect(server.url, timeout=0.1, retries=0).get(JOB_ID, service="docs")


async def test_an_ended_job_is_not_asked_for_again(connect: Connect, scripted: Any) -> None:
    server = await scripted({"json": DONE})
    client = connect(server.url)
    handle = await client.get(JOB_ID, service="docs")
    await client.wait(handle)
    assert await client.result(handle) == {"entities": []}
    assert len(server.asked) == 1


async def test_a_known_key_of_an_ended_job_still_gets_its_result(
    connect: Connect, scripted: Any
) -> None:
    ended = TICKET | {"status": "completed", "terminal": True}
    server = await scripted({"status": 202, "json": ended}, {"json": DONE})
    client = connect(server.url)
    handle = await client.submit("docs", "analyze", {}, idempotency_key="known")
    assert (handle.terminal, handle.is_whole) == (True, False)
    assert await client.result(handle) == {"entities": []}


async def test_a_job_of_a_listing_still_gets_its_result(connect: Connect, scripted: Any) -> None:
    page = {"items": [job("completed")], "total": 1}
    server = await scripted({"json": page}, {"json": DONE})
    client = connect(server.url)
    (listed,) = (await client.list("docs")).items
    assert await client.result(listed) == {"entities": []}


async def test_a_status_that_this_client_does_not_know_is_no_end(
    connect: Connect, scripted: Any
) -> None:
    server = await scripted({"json": job("levitating")}, {"json": DONE})
    handle = await connect(server.url).wait(JOB_ID, service="docs")
    assert handle.status == "completed"


async def test_a_job_can_do_what_its_client_can(connect: Connect, scripted: Any) -> None:
    server = await scripted(
        {"status": 202, "json": TICKET},
        {"json": job("processing")},
        {"status": 202, "json": job("cancel_requested")},
        {"json": DONE},
        {"events": [END_EVENT]},
    )
    client = connect(server.url)
    handle = await client.submit("docs", "analyze")
    assert (await client.do(handle.refresh)).status == "processing"
    assert (await client.do(handle.cancel)).status == "cancel_requested"
    assert (await client.do(handle.wait, 60)) is handle
    assert repr(handle) == f"<{type(handle).__name__} {JOB_ID} completed>"
    assert [event.name for event in await client.stream(handle)] == ["end"]
    assert [asked.path for asked in server.asked[1:]] == [
        JOB_URL,
        f"{JOB_URL}/cancel",
        JOB_URL,
        f"{JOB_URL}/events",
    ]


@pytest.mark.parametrize("wait", [-1, 61, float("nan")])
async def test_a_submission_cannot_be_held_for_any_time(connect: Connect, wait: float) -> None:
    with pytest.raises(ValueError, match="wait must be 0 to 60 seconds"):
        await connect("http://127.0.0.1:9").submit("docs", "analyze", wait=wait)
