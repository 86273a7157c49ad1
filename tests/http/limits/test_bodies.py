"""Bodies: in time, of a size, of a kind, or refused so that the caller can read why."""

from __future__ import annotations

import asyncio
import gzip
import json
from contextlib import AsyncExitStack

import pytest

from coatcheck.http import memory_budget, request
from coatcheck.http.memory_budget import BodyBudget
from coatcheck.http.protocol import Bounds
from tests.http.limits.wire import (
    BODY_BYTES_MAX,
    GET,
    RouteServer,
    Wire,
    assert_problem,
    connected,
    route_server,
)
from tests.waiting import eventually_async

POST = b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
LINGERING_BRIEFLY = Bounds(linger_seconds=0.3)


def sized(body: bytes) -> bytes:
    return POST + b"content-length: %d\r\n\r\n%s" % (len(body), body)


async def kept(wire: Wire) -> bool:
    """Whether the connection takes another request."""
    await wire.say(GET)
    return (await wire.answer()).status == 200


async def held(bodies: BodyBudget, size: int) -> None:
    async def counted() -> bool:
        return bodies.held_bytes == size

    await eventually_async(counted, f"{size} bytes of bodies are reserved")


async def test_a_body_that_trickles_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "BODY_SECONDS_MAX", 0.3)
    async with route_server(LINGERING_BRIEFLY) as served, connected(served) as wire:
        await wire.say(POST + b"content-length: 900\r\n\r\n[")
        saying = asyncio.create_task(wire.keep_saying(b" "))
        assert_problem(await wire.answer(), 408, "body_too_slow")
        assert await wire.end() == b""
        await saying


async def test_a_body_shorter_than_it_said_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request, "BODY_SECONDS_MAX", 0.3)
    async with route_server() as served, connected(served) as wire:
        await wire.say(POST + b"content-length: 900\r\n\r\n[]")
        assert_problem(await wire.answer(), 408, "body_too_slow")
        assert await wire.end() == b""


async def test_a_body_longer_than_it_said_is_taken_for_the_next_request() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(POST + b"content-length: 2\r\n\r\n[][][]\r\n\r\n")
        assert (await wire.answer()).json() == []
        assert_problem(await wire.answer(), 400, "malformed_request")
        assert await wire.end() == b""


async def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(POST + b"content-length: 99999999999\r\n\r\n")
        assert_problem(await wire.answer(), 413, "body_too_large")
        assert await wire.end() == b""


async def test_a_caller_that_goes_on_sending_a_large_body_still_reads_its_answer() -> None:
    async with route_server(LINGERING_BRIEFLY) as served, connected(served) as wire:
        await wire.say(POST + b"content-length: 99999999999\r\n\r\n")
        saying = asyncio.create_task(wire.keep_saying(b"x" * 60_000))
        assert_problem(await wire.answer(), 413, "body_too_large")
        assert await wire.end() == b""
        await saying  # it is cut off in the end


async def test_a_chunked_body_is_counted_while_it_comes() -> None:
    async with route_server(LINGERING_BRIEFLY) as served, connected(served) as wire:
        await wire.say(CHUNKED)
        saying = asyncio.create_task(wire.keep_saying(b"1f4\r\n" + b"x" * 500 + b"\r\n"))
        assert_problem(await wire.answer(), 413, "body_too_large")
        assert await wire.end() == b""
        await saying


async def test_a_chunked_body_within_the_limit_is_taken() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(CHUNKED + b"1\r\n[\r\n4\r\n1, 2\r\n1\r\n]\r\n0\r\n\r\n")
        assert (await wire.answer()).json() == [1, 2]
        assert await kept(wire)


async def test_a_body_of_exactly_the_limit_is_taken() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(sized(b"[" + b" " * (BODY_BYTES_MAX - 2) + b"]"))
        assert (await wire.answer()).json() == []


async def test_a_broken_chunk_is_refused_at_once() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(CHUNKED + b"1\r\n[\r\nnonsense\r\n")
        assert_problem(await wire.answer(), 400, "malformed_request")
        assert await wire.end() == b""


@pytest.mark.parametrize("behind_its_head", [True, False])
async def test_long_chunk_extensions_are_refused(behind_its_head: bool) -> None:
    chunk = b"2;a=" + b"x" * 20_000 + b"\r\n[]\r\n0\r\n\r\n"
    async with route_server(LINGERING_BRIEFLY) as served, connected(served) as wire:
        if behind_its_head:
            await wire.say(CHUNKED + chunk)
        else:
            await wire.say(CHUNKED + b"2\r\n")
            await wire.say(b"[]\r\n" + chunk)
        heard = await wire.answer()
        assert_problem(heard, 400, "malformed_request")
        assert "8192" in heard.json()["detail"]


async def test_chunk_extensions_are_counted_over_all_chunks() -> None:
    async with route_server(LINGERING_BRIEFLY) as served, connected(served) as wire:
        await wire.say(CHUNKED)
        saying = asyncio.create_task(wire.keep_saying(b"1;a=" + b"x" * 90 + b"\r\n \r\n"))
        assert_problem(await wire.answer(), 400, "malformed_request")
        await saying


async def test_short_chunk_extensions_and_many_small_chunks_are_taken() -> None:
    async with route_server() as served, connected(served) as wire:
        spaces = b"1\r\n \r\n" * (BODY_BYTES_MAX - 2)
        await wire.say(CHUNKED + b"1;signature=abc\r\n[\r\n" + spaces + b"1\r\n]\r\n0\r\n\r\n")
        assert (await wire.answer()).json() == []
        assert await kept(wire)


async def test_trailers_do_not_become_headers() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(b"GET /here HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
        await wire.say(b"0\r\nx-api-key: smuggled\r\n\r\n")
        assert (await wire.answer()).status == 200
        assert await kept(wire)
    assert all(b"x-api-key" not in headers for headers in served.headers)


async def test_endless_trailers_are_refused() -> None:
    async with route_server(LINGERING_BRIEFLY) as served, connected(served) as wire:
        await wire.say(CHUNKED + b"2\r\n[]\r\n0\r\n")
        saying = asyncio.create_task(wire.keep_saying(b"x: " + b"y" * 5_000 + b"\r\n"))
        assert_problem(await wire.answer(), 431, "headers_too_large")
        assert await wire.end() == b""
        await saying


@pytest.mark.parametrize("coding", [b"deflate", b"br", b"zstd", b"gzip, gzip"])
async def test_a_body_of_another_coding_than_gzip_is_not_taken(coding: bytes) -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(POST + b"content-encoding: %s\r\ncontent-length: 9\r\n\r\n" % coding)
        heard = await wire.answer()
        assert_problem(heard, 415, "compressed_body")
        assert await wire.end() == b""


def zipped(body: bytes, coding: bytes = b"gzip") -> bytes:
    coded = b"content-encoding: %s\r\ncontent-length: %d\r\n\r\n" % (coding, len(body))
    return POST + coded + body


@pytest.mark.parametrize("coding", [b"gzip", b"GZIP", b"x-gzip"])
async def test_a_gzip_body_is_inflated(coding: bytes) -> None:
    said = json.dumps(["x" * 900]).encode()
    async with route_server() as served, connected(served) as wire:
        await wire.say(zipped(gzip.compress(said), coding))
        assert (await wire.answer()).json() == ["x" * 900]
        await wire.say(zipped(gzip.compress(said[:5]) + gzip.compress(said[5:])))
        assert (await wire.answer()).json() == ["x" * 900], "of several members"
        assert await kept(wire)


async def test_a_gzip_body_that_comes_byte_by_byte_is_inflated() -> None:
    body = gzip.compress(b'["hello"]')
    async with route_server() as served, connected(served) as wire:
        await wire.say(POST + b"content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n")
        for byte in body:
            await wire.say(b"1\r\n%c\r\n" % byte)
        await wire.say(b"0\r\n\r\n")
        assert (await wire.answer()).json() == ["hello"]


@pytest.mark.parametrize(
    "body",
    [
        b"no gzip at all",
        gzip.compress(b"[1]")[:-3],
        gzip.compress(b"[1]") + b"more",
        gzip.compress(b"[1]") + b"\x1f\x8b",
        gzip.compress(b"[1]")[:-8] + b"\0" * 8,
    ],
    ids=["not gzip", "cut off", "garbage after it", "half a member after it", "checksum"],
)
async def test_a_body_that_is_not_whole_gzip_is_refused(body: bytes) -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(zipped(body))
        heard = await wire.answer()
        assert (heard.status, heard.json()["code"]) == (400, "invalid_body")
        assert await kept(wire)


async def test_inflated_bytes_count_against_the_bound_of_a_body() -> None:
    async with route_server() as served, connected(served) as wire:
        body = gzip.compress(b"[" + b" " * BODY_BYTES_MAX + b"]")
        assert len(body) < BODY_BYTES_MAX
        await wire.say(zipped(body))
        assert_problem(await wire.answer(), 413, "body_too_large")


async def test_room_is_reserved_for_what_a_gzip_body_may_amount_to() -> None:
    bodies = BodyBudget(16 * 4 * BODY_BYTES_MAX)
    async with route_server(bodies=bodies) as served, connected(served) as wire:
        body = gzip.compress(b"[1]")
        await wire.say(zipped(body)[:-4])
        await held(bodies, BODY_BYTES_MAX)
        await wire.say(body[-4:])
        assert (await wire.answer()).json() == [1]
        await held(bodies, 0)


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        (b"application/json", 200),
        (b"application/json; charset=utf-8", 200),
        (b'Application/JSON ; Charset="UTF-8"', 200),
        (b"application/merge-patch+json", 200),
        (b"application/json; charset=latin-1", 415),
        (b"application/x-www-form-urlencoded", 415),
        (b"text/plain", 415),
        (b"application/jsonp", 415),
        (b"", 415),
    ],
)
async def test_a_body_must_say_that_it_is_json(content_type: bytes, status: int) -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(
            b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ncontent-type: %s\r\n\r\n[]"
            % content_type
        )
        heard = await wire.answer()
        assert heard.status == status
        if status == 415:
            assert heard.json()["code"] == "unsupported_media_type"
            assert "json" in heard.json()["detail"].lower()
        assert await kept(wire)


async def test_a_body_that_does_not_say_what_it_is_is_taken_for_json() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n[]")
        assert (await wire.answer()).json() == []


async def test_a_body_that_comes_after_its_answer_leaves_the_connection_open() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(b"POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n")
        assert (await wire.answer()).status == 404
        await wire.say(b"hello")
        assert await kept(wire)


async def test_a_body_that_nobody_wants_is_thrown_away_only_so_long() -> None:
    bounds = Bounds(head_seconds=0.3, linger_seconds=0.3)
    async with route_server(bounds) as served, connected(served) as wire:
        await wire.say(b"POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\n")
        assert (await wire.answer()).status == 404
        saying = asyncio.create_task(wire.keep_saying(b"x"))
        assert await wire.end() == b""
        await saying


async def test_a_body_that_nobody_wants_is_thrown_away_only_to_a_size() -> None:
    bounds = Bounds(discarded_bytes=100_000, linger_seconds=0.3)
    async with route_server(bounds) as served, connected(served) as wire:
        await wire.say(b"POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\n")
        assert (await wire.answer()).status == 404
        saying = asyncio.create_task(wire.keep_saying(b"x" * 60_000))
        assert await wire.end() == b""
        await saying


async def test_a_caller_that_waits_for_leave_to_send_gets_it() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(POST + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        leave = b"HTTP/1.1 100 Continue\r\n\r\n"
        assert await wire.exactly(len(leave)) == leave
        await wire.say(b"[]")
        assert (await wire.answer()).json() == []
        assert await kept(wire)


async def test_a_caller_that_waits_for_leave_to_send_is_refused_without_it() -> None:
    async with route_server() as served, connected(served) as wire:
        await wire.say(POST + b"expect: 100-continue\r\ncontent-length: 9999\r\n\r\n")
        assert_problem(await wire.answer(), 413, "body_too_large")
        assert await wire.end() == b""


async def test_bodies_that_are_not_sent_whole_take_no_more_than_their_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a credential, from one address: a quarter of a sixteenth."""
    monkeypatch.setattr(memory_budget, "BODY_WAIT_SECONDS_MAX", 0.05)
    half_sent = POST + b"content-length: 1000\r\n\r\n["
    bodies = BodyBudget(16 * 4 * 2_500)
    async with (
        route_server(LINGERING_BRIEFLY, bodies=bodies) as served,
        connected(served) as first,
        connected(served) as second,
    ):
        await first.say(half_sent)
        await second.say(half_sent)
        await held(bodies, 2_000)
        async with connected(served) as third:
            await third.say(half_sent)
            answer = await third.answer()
            assert_problem(answer, 429, "too_many_bytes_in_flight")
            assert answer.headers["retry-after"] == "5"
        async with connected(served) as whole:
            await whole.say(sized(b"[" + b" " * 900 + b"]"))
            assert (await whole.answer()).json() == []
        await first.say(b" " * 998 + b"]")
        assert (await first.answer()).json() == []
        async with connected(served) as fourth:
            await fourth.say(half_sent)
            await fourth.say(b" " * 998 + b"]")
            assert (await fourth.answer()).json() == []


async def test_a_body_of_unknown_length_takes_room_for_the_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_budget, "BODY_WAIT_SECONDS_MAX", 0.05)
    bodies = BodyBudget(16 * 4 * BODY_BYTES_MAX)
    async with (
        route_server(LINGERING_BRIEFLY, bodies=bodies) as served,
        connected(served) as first,
        connected(served) as second,
    ):
        await first.say(CHUNKED + b"1\r\n[\r\n")
        await held(bodies, BODY_BYTES_MAX)
        await second.say(CHUNKED + b"1\r\n[\r\n")
        assert_problem(await second.answer(), 429, "too_many_bytes_in_flight")
        await first.say(b"1\r\n]\r\n0\r\n\r\n")
        assert (await first.answer()).json() == []


HOLDING = b"POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n" + b"x" * 20_000
ROOM_FOR_TWO = Bounds(linger_seconds=0.3, unread_bodies_bytes=50_000)


async def hold(served: RouteServer, wire: Wire) -> None:
    """Send the beginning of a body, which nobody asks for."""
    served.entered.clear()
    await wire.say(HOLDING)
    await served.entered.wait()


async def test_bodies_that_nobody_asks_for_are_bounded_in_all() -> None:
    async with (
        route_server(ROOM_FOR_TWO) as served,
        connected(served) as first,
        connected(served) as second,
        connected(served) as third,
    ):
        for wire in (first, second, third):
            await hold(served, wire)
        assert await first.is_cut_off()
        served.release.set()
        for wire in (second, third):
            assert (await wire.answer()).json() == {"slow": "done"}


async def test_a_body_is_taken_while_others_hold_theirs_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those who hold theirs for longest make room for it."""
    body = b"[" + b" " * 20_000 + b"]"
    monkeypatch.setattr("tests.http.limits.wire.BODY_BYTES_MAX", len(body))
    async with route_server(ROOM_FOR_TWO) as served, AsyncExitStack() as open_wires:
        holding = [await open_wires.enter_async_context(connected(served)) for _ in range(5)]
        for wire in holding:
            await hold(served, wire)
        async with connected(served) as bystander:
            for _ in range(2):
                await bystander.say(sized(body))
                assert (await bystander.answer()).json() == []
        for wire in holding[:4]:
            assert await wire.is_cut_off()
        served.release.set()
        assert (await holding[4].answer()).json() == {"slow": "done"}


async def test_a_body_that_is_too_much_by_itself_is_refused() -> None:
    bounds = Bounds(linger_seconds=0.3, unread_bodies_bytes=19_000)
    async with route_server(bounds) as served:
        async with connected(served) as wire:
            await wire.say(HOLDING)
            assert_problem(await wire.answer(), 503, "server_busy")
            assert await wire.end() == b""
        async with connected(served) as wire:
            await wire.say(sized(b"[]"))
            assert (await wire.answer()).json() == []
