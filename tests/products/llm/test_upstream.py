"""How targets are called: lines as they come, looks within bounds, their own clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.db.connection import Connection
from coatcheck.products.llm import upstream as upstream_module
from coatcheck.products.llm.answers import ANSWER_BYTES_MAX, AnswerTooLarge
from coatcheck.products.llm.target_monitor import TargetMonitor
from coatcheck.products.llm.upstream import Upstream, lines
from coatcheck.settings.targets import LlmTarget
from tests.waiting import eventually_async

LONG_AGO = "Thu, 01 Jan 2015 00:00:00 GMT"


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """The URL of a server that answers every request with these bytes, and nothing more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def response_of(pieces: list[bytes]) -> httpx2.Response:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return httpx2.Response(200, content=body())


written = st.lists(st.binary(max_size=6).filter(lambda line: b"\n" not in line), max_size=8)


@given(written, st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.booleans(), st.data())
async def test_lines_are_the_same_however_they_are_cut(
    said: list[bytes], end: bytes, ended: bool, data: st.DataObject
) -> None:
    stream = end.join(said) + (end if ended else b"")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    expected = [line.strip() for line in stream.split(b"\n") if line.strip()]
    assert [line async for line in lines(response_of(pieces))] == expected


async def test_a_line_that_is_too_long_is_not_read_to_its_end() -> None:
    piece = b"x" * (1024 * 1024)
    asked = 0

    async def without_end() -> AsyncIterator[bytes]:
        nonlocal asked
        while True:
            asked += 1
            yield piece

    with pytest.raises(AnswerTooLarge):
        await anext(lines(httpx2.Response(200, content=without_end())))
    assert asked == ANSWER_BYTES_MAX // len(piece) + 1


async def test_a_look_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_module, "GET_SECONDS_MAX", 0.05)

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, Upstream() as upstream:
        with pytest.raises(httpx2.ReadTimeout):
            await upstream.get(LlmTarget("box", url), "/api/ps")


async def test_how_long_a_model_stays_is_read_by_the_targets_own_clock(dsn: str) -> None:
    body = json.dumps(
        {
            "models": [
                {"model": "stays", "expires_at": "2015-01-01T00:05:00.123456789Z"},
                {"model": "gone", "expires_at": "2014-12-31T15:59:59-08:00"},
                {"name": "no-time:7b"},
                {"model": ""},
            ]
        }
    ).encode()
    head = f"HTTP/1.1 200 OK\r\ndate: {LONG_AGO}\r\ncontent-length: {len(body)}\r\n\r\n"
    line = Connection(dsn, name="tests")
    async with (
        answering(head.encode() + body) as url,
        Upstream() as upstream,
        TargetMonitor(line, upstream, [LlmTarget("box", url)], lambda: None) as monitor,
    ):

        async def looked() -> bool:
            return bool(monitor.offers()[0].resident)

        await eventually_async(looked, "the target was looked at")
        [offer] = monitor.offers()
        assert offer.resident == {"stays:latest", "no-time:7b"}
        assert offer.models == {"stays:latest", "gone:latest", "no-time:7b"}
    await line.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nnot one",
        b'HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{"models": [7]}',
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n",
        b"what is this?\r\n\r\n",
    ],
    ids=["error", "no JSON", "no list", "redirect", "no HTTP"],
)
async def test_a_target_without_lists_is_offered_for_every_model(dsn: str, answer: bytes) -> None:
    line = Connection(dsn, name="tests")
    told = asyncio.Event()
    async with (
        answering(answer) as url,
        Upstream() as upstream,
        TargetMonitor(line, upstream, [LlmTarget("box", url)], told.set) as monitor,
    ):
        assert monitor.offers()[0].concurrency == 0
        await told.wait()
        [offer] = monitor.offers()
        assert (offer.concurrency, offer.models, offer.resident) == (1, None, frozenset())
    await line.close()
