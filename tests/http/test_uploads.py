"""A file in a form, taken in as it comes: over a socket, in pieces of every size."""

from __future__ import annotations

import asyncio
import gzip
import random
import secrets
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.domain.errors import InvalidBody
from coatcheck.http import bodies
from coatcheck.http import request as request_module
from coatcheck.http.protocol import Bounds
from coatcheck.http.request import Request
from coatcheck.http.response import Message
from tests.http.limits.wire import GET, Heard, Wire, assert_problem, connected
from tests.http.uploads import (
    BOUNDARY,
    DISPOSITION,
    FILE_BYTES_MAX,
    LAST_CHUNK,
    chunk,
    form,
    head,
    taken,
    upload_site,
)

MIB = 1024 * 1024
LINGERING_BRIEFLY = Bounds(linger_seconds=0.3)
LOOKALIKE = b"\r\n--" + BOUNDARY[:-1] + b"\r\n--\r\n\r--" + BOUNDARY


async def sent(wire: Wire, body: bytes, **about: bytes) -> Heard:
    await wire.say(head(length=len(body), **about) + body)
    return await wire.answer()


async def kept(wire: Wire) -> bool:
    """Whether the connection takes another request."""
    await wire.say(GET)
    return (await wire.answer()).status == 200


def cut(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = next(sizes)
        yield data[at : at + size]
        at += size


# Pieces


@pytest.mark.parametrize("content", [b"", b"x", LOOKALIKE, b"\r\n" * 50, bytes(range(256))])
async def test_a_file_is_taken_in_with_every_byte_of_it(content: bytes) -> None:
    async with upload_site() as served, connected(served) as wire:
        heard = await sent(wire, form(content))
        assert (heard.status, heard.json()) == (200, taken(content))
        assert await kept(wire)


async def test_a_form_may_come_in_chunks() -> None:
    async with upload_site() as served, connected(served) as wire:
        body = form(LOOKALIKE)
        await wire.say(head(length=None))
        for at in range(0, len(body), 7):
            await wire.say(chunk(body[at : at + 7]))
        await wire.say(LAST_CHUNK)
        assert (await wire.answer()).json() == taken(LOOKALIKE)
        assert await kept(wire)


async def test_a_form_may_come_byte_by_byte() -> None:
    async with upload_site() as served, connected(served) as wire:
        body = form(LOOKALIKE)
        await wire.say(head(length=len(body)))
        for byte in body:
            await wire.say(bytes([byte]))
        assert (await wire.answer()).json() == taken(LOOKALIKE)


@pytest.mark.parametrize("sizes", [(1, 64), (3 * MIB, 5 * MIB), (1, 2 * MIB)])
async def test_a_large_form_may_come_in_pieces_of_any_size(sizes: tuple[int, int]) -> None:
    chance = random.Random(1)
    content = chance.randbytes(64 * 1024) + LOOKALIKE * 50
    content *= 20 * MIB // len(content) if sizes[1] > MIB else 2
    body = form(content)
    pieces = cut(body, iter(lambda: chance.randint(*sizes), None))
    async with upload_site() as served, connected(served) as wire:
        await wire.say(head(length=None))
        for piece in pieces:
            await wire.say(chunk(piece))
        await wire.say(LAST_CHUNK)
        assert (await wire.answer()).json() == taken(content)


def arriving(pieces: Sequence[bytes]) -> Request:
    """A request whose body the server hands over in exactly these pieces."""
    waiting = list(pieces)

    async def receive() -> Message:
        piece = waiting.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(waiting)}

    media_type = b'multipart/form-data; boundary="%s"' % BOUNDARY
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": b"",
        "headers": [(b"content-type", media_type)],
    }
    return Request(scope, receive, "request-1")


async def read(pieces: Sequence[bytes]) -> bytes:
    found: AsyncIterator[bytes]
    async with aclosing(bodies.file_part(arriving(pieces), "file", MIB)) as found:
        return b"".join([piece async for piece in found])


async def test_a_form_may_be_cut_at_any_byte() -> None:
    body = form(LOOKALIKE)
    for at in range(1, len(body)):
        assert await read([body[:at], body[at:]]) == LOOKALIKE


@given(
    st.lists(
        st.sampled_from([b"\r", b"\n", b"-", b"--", BOUNDARY, BOUNDARY[:5], b"x", b"\r\n--"]),
        max_size=20,
    ).map(b"".join),
    st.lists(st.integers(0, 300), max_size=6),
)
def test_whatever_a_file_holds_and_wherever_it_is_cut_it_is_the_same(
    content: bytes, cuts: list[int]
) -> None:
    if b"\r\n--" + BOUNDARY in b"\r\n" + content:
        return  # no sender may choose a boundary that is in the file
    body = form(content)
    places = sorted({0, *(place for place in cuts if place < len(body)), len(body)})
    pieces = [body[start:end] for start, end in pairwise(places)]
    assert asyncio.run(read(pieces)) == content


async def test_a_form_that_breaks_off_anywhere_is_no_form() -> None:
    body = form(b"content")
    end = body.rindex(b"--") + 2  # what follows the last two dashes is only a line's end
    for at in range(1, end):
        with pytest.raises(InvalidBody):
            await read([body[:at]])


# What is around the file


@pytest.mark.parametrize(
    "disposition",
    [
        b'content-disposition: form-data; name="file"\r\n',
        b"Content-Disposition: form-data; name=file\r\n",
        b'Content-Disposition: form-data; filename="a;b.zip"; name="file"\r\n',
        b"Content-Disposition: form-data; name=\"file\"; filename*=UTF-8''%e2%82%ac.zip\r\n",
        b'Content-Disposition: form-data; name="file"; filename="\xff\xfe.zip"\r\n',
        b'Content-Type: application/zip\r\nContent-Disposition: form-data; name="file"\r\n',
    ],
)
async def test_a_part_is_known_by_its_name_alone(disposition: bytes) -> None:
    async with upload_site() as served, connected(served) as wire:
        heard = await sent(wire, form(b"content", headers=disposition))
        assert (heard.status, heard.json()) == (200, taken(b"content"))


@pytest.mark.parametrize(
    "disposition",
    [
        b"",
        b"Content-Type: application/zip\r\n",
        b"Content-Disposition: form-data\r\n",
        b'Content-Disposition: form-data; name="files"\r\n',
        b'Content-Disposition: form-data; filename="file"\r\n',
        b"Content-Disposition: form-data; name*=UTF-8''other\r\n",
        b'Content-Disposition: form-data; name="\xff"\r\n',
    ],
)
async def test_a_part_of_another_name_or_of_none_is_refused(disposition: bytes) -> None:
    async with upload_site() as served, connected(served) as wire:
        heard = await sent(wire, form(b"content", headers=disposition))
        assert (heard.status, heard.json()["code"]) == (400, "invalid_parameter")


async def test_what_follows_the_form_is_not_the_file() -> None:
    async with upload_site() as served, connected(served) as wire:
        heard = await sent(wire, form(b"content", after=b"an epilogue\r\n--" + BOUNDARY))
        assert (heard.status, heard.json()) == (200, taken(b"content"))


async def test_empty_lines_before_the_form_are_passed_over() -> None:
    async with upload_site() as served, connected(served) as wire:
        heard = await sent(wire, b"\r\n" + form(b"content"))
        assert (heard.status, heard.json()) == (200, taken(b"content"))


async def test_words_before_the_form_are_refused() -> None:
    async with upload_site() as served, connected(served) as wire:
        heard = await sent(wire, b"a preamble\r\n" + form(b"content"))
        assert (heard.status, heard.json()["code"]) == (400, "invalid_body")


@pytest.mark.parametrize(
    "headers",
    [
        DISPOSITION + b"X: " + b"y" * 9_000 + b"\r\n",
        DISPOSITION + b"X" * 9_000 + b": y\r\n",
        DISPOSITION + b"X: y\r\n" * 17,
    ],
)
async def test_a_part_with_too_much_of_a_head_is_refused(headers: bytes) -> None:
    async with upload_site() as served, connected(served) as wire:
        heard = await sent(wire, form(b"content", headers=headers))
        assert (heard.status, heard.json()["code"]) == (400, "invalid_body")


async def test_a_part_whose_head_has_no_end_is_refused_before_it_is_read() -> None:
    async with upload_site(bounds=LINGERING_BRIEFLY) as served, connected(served) as wire:
        await wire.say(head(length=None) + chunk(b"--" + BOUNDARY + b"\r\nX: "))
        saying = asyncio.create_task(wire.keep_saying(chunk(b"y" * 60_000)))
        heard = await wire.answer()
        assert (heard.status, heard.json()["code"]) == (400, "invalid_body")
        assert await wire.end() == b""  # a caller that goes on all the same is cut off
        await saying


@pytest.mark.parametrize("boundary", [b"x" * 300, b"\xff", b""])
async def test_a_boundary_that_is_none_is_refused(boundary: bytes) -> None:
    async with upload_site() as served, connected(served) as wire:
        heard = await sent(wire, form(b"content", boundary=b"other"), boundary=boundary)
        assert heard.status in (400, 415)
        assert heard.json()["code"] in ("invalid_body", "unsupported_media_type")


GZIP = b"content-encoding: gzip\r\n"


async def test_a_gzip_form_is_inflated_as_it_comes() -> None:
    content = bytes(range(256)) * 4_000
    body = gzip.compress(form(content))
    async with upload_site() as served, connected(served) as wire:
        await wire.say(head(length=len(body), more=GZIP) + body)
        assert (await wire.answer()).json() == taken(content)


async def test_a_form_that_inflates_to_a_hundred_times_its_size_is_refused() -> None:
    body = gzip.compress(form(b"\0" * (FILE_BYTES_MAX // 2)))
    assert len(body) < FILE_BYTES_MAX / 500
    async with upload_site() as served, connected(served) as wire:
        await wire.say(head(length=len(body), more=GZIP) + body)
        assert_problem(await wire.answer(), 413, "compression_ratio")


async def test_others_have_their_turn_while_a_piece_is_inflated() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    request = arriving([gzip.compress(bytes(MIB))])
    request.headers = {b"content-encoding": b"gzip"}
    running = asyncio.create_task(other())
    inflated = [len(piece) async for piece in request.pieces(MIB)]
    running.cancel()
    assert sum(inflated) == MIB
    assert turns >= len(inflated) > 1


async def test_inflated_bytes_count_against_the_bound_of_a_file() -> None:
    content = secrets.token_bytes(40_000)
    body = gzip.compress(form(content))
    async with upload_site(bytes_max=30_000) as served, connected(served) as wire:
        await wire.say(head(length=len(body), more=GZIP) + body)
        assert_problem(await wire.answer(), 413, "body_too_large")


async def test_a_gzip_form_that_is_cut_off_is_refused() -> None:
    body = gzip.compress(form(b"content"))[:-1]
    async with upload_site() as served, connected(served) as wire:
        await wire.say(head(length=len(body), more=GZIP) + body)
        heard = await wire.answer()
        assert (heard.status, heard.json()["code"]) == (400, "invalid_body")


# How much and how long


async def test_a_file_of_exactly_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    async with upload_site(bytes_max=1_000) as served:
        async with connected(served) as wire:
            assert (await sent(wire, form(b"x" * 1_000))).json() == taken(b"x" * 1_000)
        async with connected(served) as wire:
            heard = await sent(wire, form(b"x" * 1_001))
            assert (heard.status, heard.json()["code"]) == (413, "body_too_large")


async def test_a_form_without_end_is_cut_off_at_the_limit() -> None:
    async with (
        upload_site(bytes_max=100_000, bounds=LINGERING_BRIEFLY) as served,
        connected(served) as wire,
    ):
        await wire.say(head(length=None) + chunk(form(b"")[: -len(BOUNDARY) - 8]))
        saying = asyncio.create_task(wire.keep_saying(chunk(b"x" * 5_000)))
        assert_problem(await wire.answer(), 413, "body_too_large")
        assert await wire.end() == b""
        await saying


async def test_an_epilogue_without_end_is_cut_off_as_well() -> None:
    async with (
        upload_site(bytes_max=100_000, bounds=LINGERING_BRIEFLY) as served,
        connected(served) as wire,
    ):
        await wire.say(head(length=None) + chunk(form(b"content")))
        saying = asyncio.create_task(wire.keep_saying(chunk(b"x" * 5_000)))
        assert_problem(await wire.answer(), 413, "body_too_large")
        assert await wire.end() == b""
        await saying


async def test_an_upload_that_pauses_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "UPLOAD_PAUSE_SECONDS_MAX", 0.3)
    async with upload_site() as served, connected(served) as wire:
        await wire.say(head(length=5_000) + form(b"x" * 9_000)[:1_000])
        heard = await wire.answer()
        assert_problem(heard, 408, "body_too_slow")
        assert await wire.end() == b""


async def test_an_upload_that_trickles_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "UPLOAD_SECONDS_MAX", 0.3)
    async with upload_site(bounds=LINGERING_BRIEFLY) as served, connected(served) as wire:
        await wire.say(head(length=MIB) + form(b"x" * MIB)[:1_000])
        saying = asyncio.create_task(wire.keep_saying(b"x"))
        assert_problem(await wire.answer(), 408, "body_too_slow")
        assert await wire.end() == b""
        await saying


async def test_an_upload_of_one_byte_now_and_then_counts_as_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_module, "UPLOAD_PAUSE_SECONDS_MAX", 0.3)
    async with upload_site(bounds=LINGERING_BRIEFLY) as served, connected(served) as wire:
        await wire.say(head(length=MIB) + form(b"x" * MIB)[:1_000])
        saying = asyncio.create_task(wire.keep_saying(b"x"))
        assert_problem(await wire.answer(), 408, "body_too_slow")
        assert await wire.end() == b""
        await saying


async def test_what_is_done_with_the_pieces_does_not_count_as_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_module, "UPLOAD_PAUSE_SECONDS_MAX", 0.3)
    left = 5

    async def receive() -> Message:
        nonlocal left
        left -= 1
        return {"type": "http.request", "body": b"x", "more_body": left > 0}

    request = Request({"method": "POST", "path": "/", "headers": ()}, receive, "r")
    pieces = []
    async for piece in request.pieces(100):
        pieces.append(piece)
        await asyncio.sleep(0.1)  # as a slow store takes it in
    assert pieces == [b"x"] * 5


async def test_nothing_of_a_large_file_is_kept_in_memory() -> None:
    peak = 0

    def look() -> None:
        nonlocal peak
        peak = max(peak, tracemalloc.get_traced_memory()[0])

    piece = chunk(bytes(256 * 1024))
    start = form(b"")[: form(b"").index(b"\r\n\r\n") + 4]
    async with upload_site(look=look) as served, connected(served) as wire:
        tracemalloc.start()
        try:
            await wire.say(head(length=None) + chunk(start))
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(24 * 4):
                await wire.say(piece)
            await wire.say(chunk(b"\r\n--" + BOUNDARY + b"--\r\n") + LAST_CHUNK)
            assert (await wire.answer()).json()["size"] == 24 * MIB
        finally:
            tracemalloc.stop()
    assert peak > 0
    assert peak - before < 4 * MIB
