"""Answers sent as gzip: to whom, which ones, and which never."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator

import httpx2
import pytest

from coatcheck.http.request import Request
from coatcheck.http.response import (
    JSON,
    RawHeaders,
    Response,
    StreamResponse,
    accepts_gzip,
    compressed_stream,
    json_response,
)
from tests.http.conftest import app_of, serving

LONG = ["a long answer"] * 1_000
ENCODED = json.dumps(LONG, separators=(",", ":")).encode()


async def small(_: Request) -> Response:
    return json_response({"short": True})


async def long(_: Request) -> Response:
    return json_response(LONG, headers=[(b"etag", b'W/"1"')])


async def very_long(_: Request) -> Response:
    return json_response(LONG * 100)


def plain(*headers: tuple[bytes, bytes]) -> RawHeaders:
    return headers


async def secret(_: Request) -> Response:
    return json_response(LONG, headers=[(b"cache-control", b"no-store")])


async def page(_: Request) -> Response:
    return Response(200, ENCODED, [(b"content-type", b"text/html; charset=utf-8")])


async def coded(_: Request) -> Response:
    return Response(200, gzip.compress(ENCODED * 9_000), [JSON, (b"content-encoding", b"gzip")])


async def pieces() -> AsyncIterator[bytes]:
    for start in range(0, len(ENCODED), 1_000):
        yield ENCODED[start : start + 1_000]


async def in_pieces(_: Request) -> StreamResponse:
    response = StreamResponse(200, pieces(), [JSON, (b"content-length", b"%d" % len(ENCODED))])
    response.is_compressible = True
    return response


async def events(_: Request) -> StreamResponse:
    return StreamResponse(200, pieces(), [(b"content-type", b"text/event-stream")])


HANDLERS = {
    "/small": small,
    "/long": long,
    "/very-long": very_long,
    "/secret": secret,
    "/page": page,
    "/coded": coded,
    "/in-pieces": in_pieces,
    "/events": events,
}


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with serving(app_of(HANDLERS)) as connected:
        yield connected


async def asked(
    client: httpx2.AsyncClient, path: str, accepted: str | None = "gzip, deflate", **more: str
) -> httpx2.Response:
    headers = {"accept-encoding": "identity" if accepted is None else accepted, **more}
    return await client.get(path, headers=headers)


@pytest.mark.parametrize(("path", "times"), [("/long", 1), ("/very-long", 100), ("/in-pieces", 1)])
async def test_a_long_answer_is_gzip_for_who_takes_it(
    client: httpx2.AsyncClient, path: str, times: int
) -> None:
    answer = await asked(client, path)
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["vary"] == "accept-encoding"
    assert answer.json() == LONG * times
    assert answer.num_bytes_downloaded < len(ENCODED) * times / 5
    as_it_is = await asked(client, path, None)
    assert "content-encoding" not in as_it_is.headers
    assert as_it_is.headers["vary"] == "accept-encoding"
    assert as_it_is.json() == LONG * times


async def test_the_tag_of_an_answer_is_the_same_however_it_is_sent(
    client: httpx2.AsyncClient,
) -> None:
    tags = {(await asked(client, "/long", accepted)).headers["etag"] for accepted in ("gzip", None)}
    assert tags == {'W/"1"'}


async def test_a_head_says_what_a_get_would(client: httpx2.AsyncClient) -> None:
    answer = await client.head("/long", headers={"accept-encoding": "gzip"})
    got = await asked(client, "/long")
    assert answer.headers["content-length"] == str(got.num_bytes_downloaded)
    assert (answer.headers["content-encoding"], answer.content) == ("gzip", b"")


@pytest.mark.parametrize("path", ["/small", "/secret", "/page", "/events"])
async def test_what_is_short_secret_a_page_or_a_stream_is_sent_as_it_is(
    client: httpx2.AsyncClient, path: str
) -> None:
    answer = await asked(client, path)
    assert answer.status_code == 200
    assert "content-encoding" not in answer.headers


async def test_what_is_compressed_already_is_left_so(client: httpx2.AsyncClient) -> None:
    answer = await asked(client, "/coded")
    assert answer.headers.get_list("content-encoding") == ["gzip"]
    assert answer.content == ENCODED * 9_000


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        (b"gzip", True),
        (b"br, GZIP;q=0.5", True),
        (b"*", True),
        (b"deflate, x-gzip", True),
        (b"*;q=0, gzip", True),
        (b"*;q=0", False),
        (b"*, gzip;q=0", False),
        (b"gzip;q=0", False),
        (b"gzip; q=0.000, identity", False),
        (b"br, zstd", False),
        (b"notgzip", False),
        (b"", False),
        (None, False),
    ],
)
def test_gzip_is_taken_by_who_says_so(accepted: bytes | None, takes: bool) -> None:
    assert accepts_gzip(accepted) is takes


async def test_a_compressed_stream_cannot_end_sooner_without_notice() -> None:
    """Many clients take a gzip body that was cut off and ended properly for whole."""
    response = compressed_stream(StreamResponse(200, pieces(), [JSON]), b"gzip")
    assert response.is_measured
