"""Packed bodies are unpacked, and never to more than was asked for."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from coatcheck import State
from tests.egress.upstream_server import Request, UpstreamServer, head, plain
from tests.products.scrape.packing import PACKED, TEXT
from tests.products.scrape.scraping import Scraping, result_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


@PACKED
async def test_a_packed_body_is_kept_unpacked(
    scraping: Scraping, site: UpstreamServer, coding: str, pack: Callable[[bytes], bytes]
) -> None:
    site.answer = plain(pack(TEXT), headers=(("Content-Encoding", coding),))
    view = await scraping.fetch(site.url())

    result = result_of(view)
    assert (result["bytes"], result["sha256"]) == (len(TEXT), hashlib.sha256(TEXT).hexdigest())
    assert await scraping.body(view) == TEXT


@pytest.mark.parametrize(
    "body", [b"no gzip at all", gzip.compress(TEXT)[:-9]], ids=["plain", "cut"]
)
async def test_a_body_that_cannot_be_unpacked_is_tried_again(
    scraping: Scraping, site: UpstreamServer, body: bytes
) -> None:
    site.answer = plain(body, headers=(("Content-Encoding", "gzip"),))
    view = await scraping.fetch(site.url())

    assert (view.state, view.error_code, view.failures) == (State.RETRYING, "body_corrupt", 1)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "x"])
async def test_a_coding_that_nobody_asked_for_fails_the_fetch(
    scraping: Scraping, site: UpstreamServer, coding: str
) -> None:
    site.answer = plain(b"x", headers=(("Content-Encoding", coding),))
    view = await scraping.fetch(site.url())

    assert (view.state, view.error_code, view.failures) == (State.FAILED, "coding_unknown", 1)


async def test_a_bomb_is_given_up_as_soon_as_it_is_too_large(
    scraping: Scraping, site: UpstreamServer
) -> None:
    bomb = gzip.compress(bytes(100 * 1024 * 1024))
    assert len(bomb) < 200_000
    site.answer = plain(bomb, headers=(("Content-Encoding", "gzip"),))
    view = await scraping.fetch(site.url())

    assert (view.state, view.error_code, view.failures) == (State.FAILED, "body_too_large", 1)
    assert await scraping.body(view) is None


@pytest.mark.parametrize(
    ("size", "state"), [(1000, State.COMPLETED), (1001, State.FAILED), (10**9, State.FAILED)]
)
async def test_a_fetch_may_ask_for_less(
    scraping: Scraping, site: UpstreamServer, size: int, state: State
) -> None:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head("200 OK", (("Content-Length", str(size)),)) + bytes(min(size, 2000)))

    site.answer = answer
    view = await scraping.fetch(site.url(), max_bytes=1000)

    assert view.state is state
    assert view.error_code == ("body_too_large" if state is State.FAILED else None)


@pytest.mark.parametrize("after", [b"", gzip.compress(b"")], ids=["nothing", "another"])
async def test_an_endless_body_is_cut_off(
    dsn: str, tmp_path: Path, site: UpstreamServer, after: bytes
) -> None:
    async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
        coding = (("Content-Encoding", "gzip"),) if after else ()
        writer.write(head("200 OK", (*coding, ("Transfer-Encoding", "chunked"))))
        filler = after * 1000 or bytes(10_000)
        while True:
            writer.write(b"%x\r\n%b\r\n" % (len(filler), filler))
            await writer.drain()

    site.answer = endless
    async with Scraping(dsn, tmp_path, bytes_max=1_000_000) as scraping:
        view = await scraping.fetch(site.url())

        assert (view.state, view.error_code) == (State.FAILED, "body_too_large")
        await site.until_left()
