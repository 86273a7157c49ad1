"""A page is fetched: what is asked for, what is kept, what the result says."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta

import pytest

from coatcheck import State
from coatcheck.domain.lanes import Lane
from coatcheck.version import __version__
from tests.egress.upstream_server import Request, UpstreamServer, head, plain
from tests.products.scrape.scraping import Scraping, result_of
from tests.waiting import until_true

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_body_is_an_artifact_and_the_result_says_what_it_is(
    scraping: Scraping, site: UpstreamServer
) -> None:
    view = await scraping.fetch(site.url("/page?a=b"))

    result = result_of(view)
    fetched_at = datetime.fromisoformat(result.pop("fetched_at"))
    assert abs(datetime.now(UTC) - fetched_at) < timedelta(minutes=5)
    assert result.pop("elapsed_ms") >= 0
    assert result == {
        "url": site.url("/page?a=b"),
        "final_url": site.url("/page?a=b"),
        "status": 200,
        "headers": {"content-type": "text/html; charset=utf-8"},
        "content_type": "text/html; charset=utf-8",
        "bytes": 14,
        "sha256": hashlib.sha256(b"<h1>hello</h1>").hexdigest(),
        "artifact": "body",
    }
    (artifact,) = await scraping.engine.artifacts(view.id)
    assert (artifact.name, artifact.media_type, artifact.size) == (
        "body",
        "text/html; charset=utf-8",
        14,
    )
    assert await scraping.body(view) == b"<h1>hello</h1>"
    assert view.lane is Lane.BULK


async def test_the_server_is_sent_the_callers_headers_and_nothing_about_the_job(
    scraping: Scraping, site: UpstreamServer
) -> None:
    view = await scraping.fetch(
        site.url(), headers={"User-Agent": "a browser", "X-Own": "caf\xe9", "Cookie": "a=b"}
    )

    assert view.state is State.COMPLETED
    (request,) = site.requests
    assert (request.method, request.body) == ("GET", b"")
    sent = {name.lower(): value for name, value in request.headers}
    sent.pop("connection", None)
    assert sent == {
        "host": f"127.0.0.1:{site.port}",
        "user-agent": "a browser",
        "accept": "*/*",
        "accept-encoding": "gzip, deflate",
        "x-own": "caf\xe9",
        "cookie": "a=b",
    }


async def test_a_server_is_told_who_asks_unless_the_caller_says_otherwise(
    scraping: Scraping, site: UpstreamServer
) -> None:
    await scraping.fetch(site.url())

    assert site.requests[0].header("user-agent") == f"coatcheck/{__version__}"


async def test_of_a_head_request_only_the_headers_are_kept(
    scraping: Scraping, site: UpstreamServer
) -> None:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head("200 OK", (("Content-Length", "99999999"), ("ETag", '"7"'))))

    site.answer = answer
    view = await scraping.fetch(site.url(), method="HEAD")

    result = result_of(view)
    assert site.requests[0].method == "HEAD"
    assert (result["artifact"], result["bytes"], result["headers"]) == (None, 0, {"etag": '"7"'})
    assert await scraping.body(view) is None


async def test_an_empty_page_is_an_empty_artifact(scraping: Scraping, site: UpstreamServer) -> None:
    site.answer = plain(status="204 No Content")
    view = await scraping.fetch(site.url())

    assert (result_of(view)["status"], result_of(view)["content_type"]) == (204, None)
    assert await scraping.body(view) == b""


async def test_a_long_body_keeps_every_byte_and_leaves_no_file(
    scraping: Scraping, site: UpstreamServer
) -> None:
    body = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(100_000))
    site.answer = plain(body)
    view = await scraping.fetch(site.url())

    result = result_of(view)
    assert (result["bytes"], result["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    assert await scraping.body(view) == body
    files = [path for path in (scraping.folder / "temp").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".lock"}


async def test_what_follows_a_number_sign_is_not_sent(
    scraping: Scraping, site: UpstreamServer
) -> None:
    result = result_of(await scraping.fetch(site.url("/page#part")))

    assert site.requests[0].target == "/page"
    assert (result["url"], result["final_url"]) == (site.url("/page#part"), site.url("/page"))


async def test_connections_are_used_again(scraping: Scraping, site: UpstreamServer) -> None:
    for _ in range(5):
        await scraping.fetch(site.url())
    site.answer = plain(b"gone", status="404 Not Found")
    for _ in range(5):
        await scraping.fetch(site.url())

    assert (len(site.requests), site.connections) == (10, 1)


async def test_cookies_of_one_fetch_are_not_sent_with_the_next(
    scraping: Scraping, site: UpstreamServer
) -> None:
    site.answer = plain(headers=(("Set-Cookie", "session=secret"),))
    result = result_of(await scraping.fetch(site.url()))
    await scraping.fetch(site.url())

    assert site.requests[1].header("cookie") is None
    assert "set-cookie" not in result["headers"]


@pytest.mark.parametrize("stage", ["before the answer", "in the body"])
async def test_a_cancelled_fetch_stops_the_transfer(
    scraping: Scraping, site: UpstreamServer, stage: str
) -> None:
    async def hang(request: Request, writer: asyncio.StreamWriter) -> None:
        if stage == "in the body":
            writer.write(head("200 OK", (("Content-Length", "1000000"),)) + bytes(1000))
            await writer.drain()
        await asyncio.get_running_loop().create_future()

    site.answer = hang
    ticket = await scraping.submit(site.url())
    await until_true(lambda: len(site.requests) == 1, "the page is being fetched")
    await scraping.engine.cancel(ticket.id)

    view = await scraping.wait_for_end(ticket)
    assert (view.state, await scraping.body(view)) == (State.CANCELLED, None)
    assert scraping.connections_of_this_process(site.port) == 0


async def test_the_longest_type_that_fits_is_kept_with_the_body(
    scraping: Scraping, site: UpstreamServer
) -> None:
    odd = "text/html; x=" + "y" * 300
    site.answer = plain(b"x", headers=(("Content-Type", odd),))
    view = await scraping.fetch(site.url())

    (artifact,) = await scraping.engine.artifacts(view.id)
    assert artifact.media_type == "application/octet-stream"
    assert result_of(view)["content_type"] == odd
