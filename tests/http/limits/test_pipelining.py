"""Requests that are sent before the answer to the one before them: a few, in their order."""

from __future__ import annotations

import asyncio

import pytest

from coatcheck.http.protocol import Bounds
from tests.http.limits.wire import GET, GUARD_SECONDS, Wire, assert_problem, connected, route_server

SLOW = b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n"
ENDLESS = b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n"
POST = b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%s"


async def refused(wire: Wire) -> int:
    """Read until a request is refused for being one too many; how many were answered before."""
    answered = 0
    while (heard := await wire.answer()).status == 200:
        answered += 1
    assert_problem(heard, 429, "pipeline_too_long")
    assert int(heard.headers["retry-after"]) > 0
    assert await wire.end() == b""
    return answered


async def test_as_many_as_may_wait_are_answered_in_their_order() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(b"".join(POST % (len(b"[%d]" % each), b"[%d]" % each) for each in range(17)))
        assert [(await wire.answer()).json() for _ in range(17)] == [[each] for each in range(17)]


async def test_one_more_is_refused_after_the_answers_before_it() -> None:
    async with route_server(Bounds(pipelined=3)) as served, connected(served) as wire:
        await wire.say(SLOW + GET * 4)
        await served.entered.wait()
        served.release.set()
        assert await refused(wire) == 4
    assert len(served.headers) == 3


async def test_thousands_in_one_packet_are_not_taken() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(SLOW + GET * 2_000)
        await served.entered.wait()
        served.release.set()
        assert await refused(wire) < 200
    assert len(served.headers) < 200


async def test_a_caller_may_send_more_than_may_wait_as_answers_come() -> None:
    async with route_server(Bounds(pipelined=2)) as served, connected(served) as wire:
        for _ in range(10):
            await wire.say(GET * 3)
            assert [(await wire.answer()).status for _ in range(3)] == [200] * 3


async def test_the_rest_of_a_head_is_not_late_while_requests_before_it_wait() -> None:
    async with route_server(Bounds(head_seconds=0.3)) as served, connected(served) as wire:
        await wire.say(SLOW + GET + GET[:10])
        await served.entered.wait()
        await asyncio.sleep(0.5)  # longer than the bound: that is what is tested
        await wire.say(GET[10:])
        served.release.set()
        assert [(await wire.answer()).status for _ in range(3)] == [200] * 3


async def test_a_head_that_came_is_not_late_while_the_request_before_it_is_handled() -> None:
    async with route_server(Bounds(head_seconds=0.3)) as served, connected(served) as wire:
        await wire.say(SLOW + SLOW + GET[:10])
        await served.entered.wait()
        await wire.say(GET[10:])
        first, served.release = served.release, asyncio.Event()
        served.entered.clear()
        first.set()
        assert (await wire.answer()).status == 200
        await served.entered.wait()  # the second is handled, and nobody waits behind it
        await asyncio.sleep(0.5)  # longer than the bound: that is what is tested
        served.release.set()
        assert [(await wire.answer()).status for _ in range(2)] == [200] * 2


async def test_nothing_is_answered_in_the_place_of_a_body_that_is_refused() -> None:
    bounds = Bounds(linger_seconds=0.3, unread_bodies_bytes=20_000)
    async with route_server(bounds) as served, connected(served) as wire:
        await wire.say(SLOW + POST % (30_000, b"x" * 30_000) + GET)
        await served.entered.wait()
        served.release.set()
        assert (await wire.answer()).json() == {"slow": "done"}
        assert_problem(await wire.answer(), 503, "server_busy")
        assert await wire.end() == b""
    assert served.headers == []


async def test_bodies_of_requests_that_wait_are_counted_together() -> None:
    """Each of them alone would not count."""
    bounds = Bounds(linger_seconds=0.3, unread_body_bytes=1_000, unread_bodies_bytes=2_500)
    waiting = b"POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 900\r\n\r\n" + b"x" * 900
    async with route_server(bounds) as served, connected(served) as wire:
        await wire.say(SLOW + waiting * 3)
        await served.entered.wait()
        served.release.set()
        assert [(await wire.answer()).status for _ in range(3)] == [200] * 3
        assert_problem(await wire.answer(), 503, "server_busy")
        assert await wire.end() == b""


async def test_a_body_that_comes_while_its_request_waits_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = b"[" + b" " * 500_000 + b"]"
    monkeypatch.setattr("tests.http.limits.wire.BODY_BYTES_MAX", len(body))
    async with route_server() as served, connected(served) as wire:
        await wire.say(SLOW + POST % (len(body), b"["))
        await served.entered.wait()
        saying = asyncio.create_task(wire.say(body[1:] + GET))
        served.release.set()
        assert [(await wire.answer()).status for _ in range(3)] == [200] * 3
        await saying


async def test_a_stream_ends_when_its_caller_leaves_requests_behind_it() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(ENDLESS + GET)
        await served.entered.wait()
        wire.break_off()
        async with asyncio.timeout(GUARD_SECONDS):
            await served.left.wait()
    assert served.headers == []
