"""How many connections there may be, how long one may be kept waiting, and how they end."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_network

import pytest

from coatcheck.http.connections import Arrival, ClientAddresses, ConnectionLimits
from coatcheck.http.memory_budget import ANSWERS, ByteBudget
from coatcheck.http.protocol import BoundedProtocol, Bounds
from tests.http.limits.wire import GET, RouteServer, Wire, assert_problem, connected, route_server
from tests.waiting import eventually_async


async def connections(served: RouteServer, count: int) -> None:
    async def counted() -> bool:
        assert served.server is not None
        return len(served.server.server_state.connections) == count

    await eventually_async(counted, f"{count} connections are open")


SLOW = b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n"
COUNTED = Bounds(connections_of_one_address=2, proxies=())


async def test_a_connection_over_the_limit_is_told_to_come_again() -> None:
    async with route_server(Bounds(connections=2)) as served:
        async with connected(served) as first, connected(served) as second:
            for wire in (first, second):
                await wire.say(SLOW)
            await connections(served, 2)
            await served.entered.wait()
            async with connected(served) as third:
                heard = await third.answer()
                assert_problem(heard, 503, "too_many_connections")
                assert int(heard.headers["retry-after"]) > 0
                assert await third.end() == b""
            served.release.set()
            assert (await first.answer()).status == 200
            assert (await second.answer()).status == 200
        await connections(served, 0)
        async with connected(served) as wire:
            await wire.say(GET)
            assert (await wire.answer()).status == 200


async def test_idle_connections_make_room_the_longest_idle_first() -> None:
    async with (
        route_server(Bounds(connections=3)) as served,
        connected(served) as busy,
        connected(served) as first,
        connected(served) as second,
    ):
        await busy.say(SLOW)
        await served.entered.wait()
        await first.say(GET)
        assert (await first.answer()).status == 200
        await asyncio.sleep(0.05)  # idle for longer than the other: that is what is tested
        await second.say(GET)
        assert (await second.answer()).status == 200
        async with connected(served) as new:
            await new.say(GET)
            assert (await new.answer()).status == 200
            assert await first.end() == b""
            await second.say(GET)
            assert (await second.answer()).status == 200
        served.release.set()
        assert (await busy.answer()).status == 200


async def test_an_address_has_only_so_many_connections_without_a_credential() -> None:
    async with route_server(COUNTED) as served:
        async with connected(served), connected(served), connected(served) as third:
            heard = await third.answer()
            assert_problem(heard, 429, "too_many_connections_of_address")
            assert int(heard.headers["retry-after"]) > 0
            assert await third.end() == b""
        await connections(served, 0)
        async with connected(served) as wire:
            await wire.say(GET)
            assert (await wire.answer()).status == 200


async def test_connections_of_a_listed_proxy_are_not_counted_by_address() -> None:
    proxies = (ip_network("127.0.0.0/8"),)
    bounds = Bounds(connections_of_one_address=1, proxies=proxies)
    async with route_server(bounds) as served, connected(served), connected(served) as second:
        await second.say(GET)
        assert (await second.answer()).status == 200


def test_addresses_are_counted_by_what_one_subscriber_has() -> None:
    addresses = ClientAddresses([ip_network("10.0.0.0/8"), ip_network("2001:db8:1::/48")])
    assert addresses.counted("192.0.2.1") != addresses.counted("192.0.2.2")
    assert addresses.counted("2001:db8::1") == addresses.counted("2001:db8::2:1")
    assert addresses.counted("2001:db8::1") != addresses.counted("2001:db8:0:1::1")
    assert addresses.counted("::ffff:192.0.2.1") == addresses.counted("192.0.2.1")
    assert addresses.counted("10.1.2.3") is None
    assert addresses.counted("::ffff:10.1.2.3") is None
    assert addresses.counted("2001:db8:1::7") is None


async def test_an_answer_that_nobody_reads_is_given_up() -> None:
    async with route_server(Bounds(stall_seconds=0.3)) as served, connected(served) as wire:
        await wire.say(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
        await connections(served, 1)
        await connections(served, 0)


async def test_a_little_that_nobody_reads_does_not_keep_an_idle_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Less is unread than an answer waits for: nobody watches the reader, until it hangs up."""
    monkeypatch.setattr("tests.http.limits.wire.BODY_BYTES_MAX", 30_000)
    async with route_server(Bounds(stall_seconds=0.3, connections=1)) as served:
        with socket.socket() as idle:
            protocol = await idle_with_unread_answers(served, idle)
            async with connected(served) as wire:
                assert await answered(wire)
                assert protocol.transport.is_closing()
                await connections(served, 1)
                assert await answered(wire)


async def idle_with_unread_answers(served: RouteServer, idle: socket.socket) -> BoundedProtocol:
    """Ask on a connection, and read nothing, until the server cannot send all of an answer."""
    assert served.server is not None
    state = served.server.server_state
    idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    idle.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(idle, ("127.0.0.1", served.port))
    await connections(served, 1)
    [protocol] = state.connections
    assert isinstance(protocol, BoundedProtocol)
    protocol.transport.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096
    )

    async def all_answered() -> bool:
        return state.total_requests == asked

    head = b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 30000\r\n\r\n"
    asked = unread = 0
    while not unread:
        await loop.sock_sendall(idle, head + b'"' + b"x" * 29_998 + b'"')
        asked += 1
        await eventually_async(all_answered, f"{asked} requests are answered")
        unread = protocol._wire.get_write_buffer_size()  # noqa: SLF001  the real transport
    assert unread < 64 * 1024
    return protocol


class _Idle:
    """A connection that nothing comes on, and that does not end when it is closed."""

    def idle_until(self) -> float:
        return 0.0

    def hang_up(self) -> None:
        pass


def test_connections_that_do_not_end_when_closed_make_room_for_so_many_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coatcheck.http.connections.OVER_MAX", 3)
    everyone: list[_Idle] = []
    counted = ConnectionLimits(10, 0)
    arrivals = []
    for _ in range(40):
        everyone.append(_Idle())
        arrivals.append(counted.opened(everyone[-1], None, everyone, 0.0))
    assert arrivals[:10] == [Arrival.ACCEPT] * 10
    assert arrivals.count(Arrival.ACCEPT) <= 10 + 3 + 1
    assert arrivals[-1] is Arrival.ABORT


async def test_an_answer_that_is_read_slowly_arrives_whole() -> None:
    async with route_server(Bounds(stall_seconds=0.9)) as served, connected(served) as wire:
        await wire.say(b"GET /large HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        heard = b""
        for _ in range(12):
            heard += await wire.exactly(500_000)
            await asyncio.sleep(0.1)  # slower in all than the bound: that is what is tested
        heard += await wire.end()
        assert heard.endswith(b"x" * 8_000_000)


async def test_a_large_last_answer_is_not_cut_while_the_caller_reads_it() -> None:
    """Its body was not read, so the server lingers; but for as long as it is read."""
    async with route_server(Bounds(linger_seconds=0.9)) as served, connected(served) as wire:
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
    async with route_server(Bounds(linger_seconds=0.2)) as served, connected(served) as wire:
        await wire.say(b"garbage\r\n\r\n")
        assert_problem(await wire.answer(), 400, "malformed_request")
        await connections(served, 0)


async def test_a_reader_that_is_too_slow_is_cut_off_although_it_reads() -> None:
    bounds = Bounds(stall_seconds=0.3, read_bytes_per_second_min=2**40)
    async with route_server(bounds) as served, connected(served) as wire:
        await wire.say(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
        reading = asyncio.create_task(wire.keep_reading())
        await connections(served, 1)
        await connections(served, 0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def test_large_answers_take_no_more_than_their_share() -> None:
    """The caller's address pays for them here: a quarter of what there is."""
    room = ByteBudget(ANSWERS, 4 * 9_000_000, is_of_bodies=False)
    async with route_server(large_responses=room) as served:
        async with connected(served) as first:
            await first.say(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
            head = await first.exactly(15)
            assert head.startswith(b"HTTP/1.1 200")
            async with connected(served) as second:
                await second.say(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
                refused = await second.answer()
                assert refused.status == 429
                assert refused.json()["code"] == "too_many_bytes_in_flight"
                assert refused.headers["retry-after"] == "5"
                assert await answered(second)
        await connections(served, 0)
        await nothing_held(room)
        async with connected(served) as third:
            await third.say(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n")
            assert len((await third.answer()).body) == 8_000_000


async def answered(wire: Wire) -> bool:
    """Whether the connection takes another request."""
    await wire.say(GET)
    return (await wire.answer()).status == 200


async def nothing_held(room: ByteBudget) -> None:
    async def counted() -> bool:
        return room.held_bytes == 0

    await eventually_async(counted, "the answer's bytes are given back")
