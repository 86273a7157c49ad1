"""How many connections there may be, how long one may be kept waiting, and how they end."""

from __future__ import annotations

import asyncio

from coatcheck.control.protocol import Bounds
from tests.http.limits.wire import GET, Site, assert_problem, connected, site
from tests.waiting import eventually_async


async def connections(served: Site, count: int) -> None:
    async def counted() -> bool:
        assert served.server is not None
        return len(served.server.server_state.connections) == count

    await eventually_async(counted, f"{count} connections are open")


async def test_a_connection_over_the_limit_is_told_to_come_again() -> None:
    async with site(Bounds(connections=2)) as served:
        async with connected(served) as first, connected(served) as second:
            for wire in (first, second):
                await wire.say(GET)
                assert (await wire.answer()).status == 200
            async with connected(served) as third:
                heard = await third.answer()
                assert_problem(heard, 503, "too_many_connections")
                assert int(heard.headers["retry-after"]) > 0
                assert await third.end() == b""
            await first.say(GET)
            assert (await first.answer()).status == 200
        await connections(served, 0)
        async with connected(served) as wire:
            await wire.say(GET)
            assert (await wire.answer()).status == 200


async def test_an_answer_that_nobody_reads_is_given_up() -> None:
    async with site(Bounds(stall_seconds=0.3)) as served, connected(served) as wire:
        await wire.say(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
        await connections(served, 1)
        await connections(served, 0)


async def test_an_answer_that_is_read_slowly_arrives_whole() -> None:
    async with site(Bounds(stall_seconds=0.9)) as served, connected(served) as wire:
        await wire.say(b"GET /large HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        heard = b""
        for _ in range(12):
            heard += await wire.exactly(500_000)
            await asyncio.sleep(0.1)  # slower in all than the bound: that is what is tested
        heard += await wire.end()
        assert heard.endswith(b"x" * 8_000_000)


async def test_a_large_last_answer_is_not_cut_while_the_caller_reads_it() -> None:
    """Its body was not read, so the server lingers; but for as long as it is read."""
    async with site(Bounds(linger_seconds=0.9)) as served, connected(served) as wire:
        await wire.say(
            b"GET /large HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 9\r\n\r\n"
        )
        heard = b""
        for _ in range(12):
            heard += await wire.exactly(500_000)
            await asyncio.sleep(0.1)  # slower in all than the bound: that is what is tested
        heard += await wire.end()
        assert heard.endswith(b"x" * 8_000_000)


async def test_a_caller_that_never_hangs_up_is_cut_off() -> None:
    async with site(Bounds(linger_seconds=0.2)) as served, connected(served) as wire:
        await wire.say(b"garbage\r\n\r\n")
        assert_problem(await wire.answer(), 400, "malformed_request")
        await connections(served, 0)
