"""Request lines and headers: in time, of a size and valid, or refused and the connection closed."""

from __future__ import annotations

import asyncio

import pytest

from coatcheck.http.protocol import Bounds
from tests.http.limits.wire import GET, assert_problem, connected, route_server

HURRIED = Bounds(head_seconds=0.3, linger_seconds=0.3)


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with route_server(HURRIED) as served, connected(served) as wire:
        assert await wire.end() == b""


async def test_headers_that_trickle_are_not_waited_for() -> None:
    async with route_server(HURRIED) as served, connected(served) as wire:
        await wire.say(GET[:-2])
        saying = asyncio.create_task(wire.keep_saying(b"x: y\r\n"))
        assert_problem(await wire.answer(), 408, "headers_too_slow")
        assert await wire.end() == b""
        await saying


async def test_headers_that_stop_are_not_waited_for() -> None:
    async with route_server(HURRIED) as served, connected(served) as wire:
        await wire.say(GET[:20])
        assert_problem(await wire.answer(), 408, "headers_too_slow")
        assert await wire.end() == b""


async def test_a_later_request_is_timed_from_its_first_byte() -> None:
    async with route_server(HURRIED) as served, connected(served) as wire:
        await wire.say(GET)
        assert (await wire.answer()).status == 200
        await wire.say(GET[:10])
        assert_problem(await wire.answer(), 408, "headers_too_slow")
        assert await wire.end() == b""


async def test_empty_lines_before_a_request_do_not_keep_the_connection() -> None:
    async with route_server(HURRIED) as served, connected(served) as wire:
        await wire.say(GET)
        assert (await wire.answer()).status == 200
        await wire.say(b"\r\n")
        assert_problem(await wire.answer(), 408, "headers_too_slow")


async def test_an_idle_connection_outlives_the_time_for_headers() -> None:
    async with route_server(Bounds(head_seconds=0.5)) as served, connected(served) as wire:
        for _ in range(2):
            await wire.say(GET)
            assert (await wire.answer()).status == 200
            await asyncio.sleep(0.7)  # idle for longer than the bound: that is what is tested


async def test_a_slow_handler_is_not_taken_for_slow_headers() -> None:
    async with route_server(Bounds(head_seconds=0.5)) as served, connected(served) as wire:
        await wire.say(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
        await served.entered.wait()
        await asyncio.sleep(0.7)  # busy for longer than the bound: that is what is tested
        served.release.set()
        assert (await wire.answer()).json() == {"slow": "done"}


async def test_headers_may_come_in_pieces() -> None:
    async with route_server() as served, connected(served) as wire:
        for byte in GET:
            await wire.say(bytes([byte]))
        assert (await wire.answer()).status == 200


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(
            b"GET /here/" + b"a" * 16_384 + b" HTTP/1.1\r\nhost: a\r\n\r\n", id="request line"
        ),
        pytest.param(b"GET /here HTTP/1.1\r\nx: " + b"a" * 16_384 + b"\r\n\r\n", id="one header"),
        pytest.param(b"GET /here HTTP/1.1\r\n" + b"x: y\r\n" * 101 + b"\r\n", id="many headers"),
        pytest.param(
            b"GET /here HTTP/1.1\r\n" + (b"x: " + b"y" * 400 + b"\r\n") * 50 + b"\r\n", id="in all"
        ),
        pytest.param(b"GET /here/" + b"a" * 16_500, id="request line without end"),
        pytest.param(b"GET /here HTTP/1.1\r\nx: " + b"a" * 16_500, id="header without end"),
        pytest.param(b"GET /here HTTP/1.1\r\n" + b"x" * 16_500, id="name without end"),
    ],
)
@pytest.mark.parametrize("kept_alive", [False, True])
async def test_too_much_before_the_body_is_refused(head: bytes, kept_alive: bool) -> None:
    async with route_server() as served, connected(served) as wire:
        if kept_alive:
            await wire.say(GET)
            assert (await wire.answer()).status == 200
        await wire.say(head)
        assert_problem(await wire.answer(), 431, "headers_too_large")
        assert await wire.end() == b""


async def test_a_head_without_end_behind_another_request_is_refused() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(GET + GET[:-2])
        saying = asyncio.create_task(wire.keep_saying(b"x" * 10_000))
        assert (await wire.answer()).status == 200
        assert_problem(await wire.answer(), 431, "headers_too_large")
        assert await wire.end() == b""
        await saying


async def test_a_large_body_before_it_is_not_counted_to_a_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = b"[" + b" " * 50_000 + b"]"
    monkeypatch.setattr("tests.http.limits.wire.BODY_BYTES_MAX", len(body))
    async with route_server() as served, connected(served) as wire:
        await wire.say(
            b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body)
            + body
            + GET[:-2]
        )
        assert (await wire.answer()).json() == []
        await wire.say(GET[-2:])
        assert (await wire.answer()).status == 200


async def test_headers_up_to_the_bounds_are_taken() -> None:
    lines = b"x: " + b"y" * 150 + b"\r\n"
    async with route_server() as served, connected(served) as wire:
        await wire.say(b"GET /here HTTP/1.1\r\nhost: a\r\n" + lines * 99 + b"\r\n")
        assert (await wire.answer()).status == 200


async def test_a_caller_that_goes_on_sending_headers_still_reads_its_answer() -> None:
    async with route_server(Bounds(linger_seconds=0.5)) as served, connected(served) as wire:
        await wire.say(b"GET /here HTTP/1.1\r\n")
        saying = asyncio.create_task(wire.keep_saying(b"x: " + b"y" * 60_000 + b"\r\n"))
        assert_problem(await wire.answer(), 431, "headers_too_large")
        assert await wire.end() == b""
        await saying  # it is cut off in the end


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(b"hello?\r\n\r\n", id="no HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
        pytest.param(b"GET / HTTP/9.9\r\n\r\n", id="version"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
        pytest.param(b"GET /\xff HTTP/1.1\r\nhost: a\r\n\r\n", id="bytes in the path"),
        pytest.param(b"CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n", id="CONNECT"),
        pytest.param(b"GET /here/%00 HTTP/1.1\r\nhost: a\r\n\r\n", id="NUL in the path"),
        pytest.param(b"GET /here?a=%00 HTTP/1.1\r\nhost: a\r\n\r\n", id="NUL in the query"),
        pytest.param(b"GET / HTTP/1.1\r\nhost: a\r\nx y: z\r\n\r\n", id="header name"),
        pytest.param(b"GET / HTTP/1.1\r\nhost: a\r\nx: a\x00b\r\n\r\n", id="header value"),
        pytest.param(b"GET / HTTP/1.1\r\n x: folded\r\n\r\n", id="folded header"),
        pytest.param(b"POST /echo HTTP/1.1\r\ncontent-length: x\r\n\r\n", id="length"),
        pytest.param(b"POST /echo HTTP/1.1\r\ncontent-length: -1\r\n\r\n", id="negative length"),
        pytest.param(
            b"POST /echo HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
            id="two lengths",
        ),
        pytest.param(
            b"POST /echo HTTP/1.1\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
            id="length and chunks",
        ),
    ],
)
async def test_what_is_not_http_is_refused_as_a_problem(request_bytes: bytes) -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(request_bytes)
        assert_problem(await wire.answer(), 400, "malformed_request")
        assert await wire.end() == b""


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(b"GET /here HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(b"GET /here HTTP/1.1\r\nhost: a\r\nHost: a\r\n\r\n", id="two hosts"),
        pytest.param(
            b"GET /here HTTP/1.1\r\nhost: a\r\nauthorization: b\r\nAuthorization: c\r\n\r\n",
            id="two credentials",
        ),
        pytest.param(
            b"GET /here HTTP/1.1\r\nhost: a\r\nx-api-key: b\r\nX-Api-Key: b\r\n\r\n",
            id="two keys",
        ),
        pytest.param(
            b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n"
            b"transfer-encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n",
            id="two codings",
        ),
        pytest.param(
            b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n"
            b"2\r\n[]\r\n0\r\n\r\n",
            id="another coding",
        ),
        pytest.param(
            b"POST /echo HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n",
            id="chunks in HTTP/1.0",
        ),
    ],
)
async def test_headers_on_which_others_may_disagree_are_refused(request_bytes: bytes) -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(request_bytes)
        assert_problem(await wire.answer(), 400, "malformed_request")
        assert await wire.end() == b""
    assert served.headers == []


async def test_http_1_0_needs_no_host() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(b"GET /here HTTP/1.0\r\n\r\n")
        assert (await wire.answer()).status == 200


async def test_other_headers_may_be_repeated() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(GET[:-2] + b"accept: a\r\naccept: b\r\n\r\n")
        assert (await wire.answer()).status == 200


async def test_an_upgrade_that_is_not_spoken_is_answered_as_if_not_asked() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(
            b"GET /here HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\nPRI *"
        )
        heard = await wire.answer()
        assert (heard.status, heard.headers["connection"]) == (200, "close")
        assert await wire.end() == b""


async def test_garbage_behind_a_request_is_refused_after_its_answer() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n" + b"garbage\r\n\r\n")
        await served.entered.wait()
        served.release.set()
        assert (await wire.answer()).json() == {"slow": "done"}
        assert_problem(await wire.answer(), 400, "malformed_request")
        assert await wire.end() == b""


async def test_garbage_behind_several_requests_is_refused_after_all_of_them() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(GET + GET + GET + b"garbage\r\n\r\n")
        assert [(await wire.answer()).status for _ in range(3)] == [200, 200, 200]
        assert_problem(await wire.answer(), 400, "malformed_request")
        assert await wire.end() == b""


async def test_half_a_request_behind_a_slow_one_is_refused_after_its_answer() -> None:
    async with route_server(HURRIED) as served, connected(served) as wire:
        await wire.say(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n" + GET[:10])
        await served.entered.wait()
        await asyncio.sleep(0.5)  # longer than the bound: that is what is tested
        served.release.set()
        assert (await wire.answer()).json() == {"slow": "done"}
        assert_problem(await wire.answer(), 408, "headers_too_slow")
        assert await wire.end() == b""
