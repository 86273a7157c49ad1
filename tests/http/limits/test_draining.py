"""A server that stops: waits are cut short, work is finished, and nobody is kept."""

from __future__ import annotations

import asyncio

import pytest

from coatcheck.http.lifecycle import ServerDraining
from tests.http.limits.wire import GET, RouteServer, connected, route_server

POLL = b"GET /poll HTTP/1.1\r\nhost: a\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n"


def stop(served: RouteServer) -> None:
    assert served.server is not None
    served.server.stop()


async def test_an_open_long_poll_is_answered_at_once() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(POLL)
        await served.entered.wait()
        stop(served)
        heard = await wire.answer()
        assert (heard.status, heard.json()) == (202, {"resume": "later"})
        assert await wire.end() == b""


async def test_a_request_that_is_under_way_is_finished_and_is_the_connections_last() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(SLOW)
        await served.entered.wait()
        stop(served)
        await served.draining.wait()
        served.release.set()
        heard = await wire.answer()
        assert (heard.json(), heard.headers["connection"]) == ({"slow": "done"}, "close")
        assert await wire.end() == b""


async def test_a_request_that_comes_during_the_drain_is_its_connections_last() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(GET)
        assert "connection" not in (await wire.answer()).headers
        served.draining.begin()
        await wire.say(GET)
        heard = await wire.answer()
        assert (heard.status, heard.headers["connection"]) == (200, "close")
        assert await wire.end() == b""


async def test_a_long_poll_that_comes_during_the_drain_does_not_wait() -> None:
    async with route_server() as served, connected(served) as wire:
        served.draining.begin()
        await wire.say(POLL)
        assert (await wire.answer()).status == 202


async def test_idle_connections_are_closed() -> None:
    async with route_server() as served, connected(served) as idle, connected(served) as silent:
        await idle.say(GET)
        assert (await idle.answer()).status == 200
        stop(served)
        assert await idle.end() == b""
        assert await silent.end() == b""


async def test_every_wait_ends_when_the_drain_begins() -> None:
    draining = ServerDraining()

    async def wait() -> str:
        async with draining.cut_short():
            await asyncio.Event().wait()
        return "answered"

    waits = [asyncio.create_task(wait()) for _ in range(10)]
    told = asyncio.create_task(draining.wait())
    await asyncio.sleep(0)
    assert not draining.begun
    draining.begin()
    draining.begin()
    assert await asyncio.gather(*waits) == ["answered"] * 10
    await told
    assert draining.begun


async def test_what_ends_by_itself_is_not_cut_short() -> None:
    draining = ServerDraining()
    async with draining.cut_short():
        await asyncio.sleep(0)
        result = "whole"
    assert result == "whole"
    assert draining.waits == 0


async def test_a_timeout_of_the_waits_own_is_raised() -> None:
    draining = ServerDraining()
    with pytest.raises(TimeoutError):
        async with draining.cut_short(), asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_a_caller_that_leaves_is_not_taken_for_the_drain() -> None:
    draining = ServerDraining()

    async def wait() -> None:
        async with draining.cut_short():
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
