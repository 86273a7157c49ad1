"""What becomes of a fetch whose page is refused, away, or breaks off."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck import State
from coatcheck.egress import Guard
from coatcheck.settings.egress_allow import parse_allow
from tests.egress.certificates import make_authority
from tests.egress.names import Busy, Names, every_name_is_public
from tests.egress.upstream_server import Request, UpstreamServer, head, plain, upstream_server
from tests.ports import free_port
from tests.products.scrape.scraping import Scraping, result_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


def reset(writer: asyncio.StreamWriter) -> None:
    """Close as a crashed process would: with a reset instead of an end."""
    taken: socket.socket = writer.get_extra_info("socket")
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 407, 410, 418, 451, 499, 600, 999])
async def test_a_refusal_fails_the_fetch_with_a_code_of_its_own(
    scraping: Scraping, site: UpstreamServer, status: int
) -> None:
    site.answer = plain(b"a long story", status=f"{status} No")
    view = await scraping.fetch(site.url())

    assert (view.state, view.error_code, view.failures) == (State.FAILED, f"http_{status}", 1)
    assert (view.result, await scraping.body(view)) == (None, None)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 522])
async def test_what_may_pass_is_tried_again(
    scraping: Scraping, site: UpstreamServer, status: int
) -> None:
    site.answer = plain(b"", status=f"{status} Later")
    view = await scraping.fetch(site.url())

    assert (view.state, view.error_code, view.failures) == (State.RETRYING, f"http_{status}", 1)


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("120", 120),
        ("99999999", 3600),
        ("Wed, 01 Jan 2025 00:10:00 GMT", 600),
        ("Wed, 01 Jan 2025 23:00:00 GMT", 3600),
    ],
)
@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
async def test_retry_after_is_obeyed_within_bounds(
    scraping: Scraping, site: UpstreamServer, asked: str, seconds: int, status: str
) -> None:
    clock = ("Date", "Wed, 01 Jan 2025 00:00:00 GMT")
    site.answer = plain(status=status, headers=(clock, ("Retry-After", asked)))
    view = await scraping.fetch(site.url())
    delay = await scraping.sql.fetchval(
        "SELECT run_at - updated_at FROM jobs WHERE id = $1", view.uuid
    )

    assert delay == timedelta(seconds=seconds)


async def test_the_fetch_completes_once_the_server_is_back(
    dsn: str, tmp_path: Path, site: UpstreamServer
) -> None:
    answers = [plain(status="503 Service Unavailable"), plain(b"back")]

    async def one_after_the_other(request: Request, writer: asyncio.StreamWriter) -> None:
        await answers.pop(0)(request, writer)

    site.answer = one_after_the_other
    async with Scraping(dsn, tmp_path) as scraping:
        ticket = await scraping.submit(site.url())
        await scraping.wait_for_state(ticket, State.RETRYING)
        await scraping.make_due(ticket)
        scraping.start_maintenance()
        view = await scraping.wait_for_end(ticket)

        assert (result_of(view)["bytes"], await scraping.body(view)) == (4, b"back")


async def test_after_the_last_retry_the_reason_is_still_told(
    scraping: Scraping, site: UpstreamServer
) -> None:
    site.answer = plain(status="503 Service Unavailable")
    view = await scraping.fetch(site.url(), retries=0)

    assert (view.state, view.error_code) == (State.FAILED, "max_retries_exhausted")
    assert "http_503" in (view.error_message or "")


async def test_a_refused_connection_is_tried_again(scraping: Scraping) -> None:
    view = await scraping.fetch(f"http://127.0.0.1:{free_port()}/")

    assert (view.state, view.error_code, view.failures) == (State.RETRYING, "connect_failed", 1)


async def test_a_name_without_an_address_is_tried_again(dsn: str, tmp_path: Path) -> None:
    guard = Guard(plain_http=True, resolver=Names())
    async with Scraping(dsn, tmp_path, guard) as scraping:
        view = await scraping.fetch("http://nowhere.example.com/")

    assert (view.state, view.error_code, view.failures) == (State.RETRYING, "dns_failed", 1)


async def test_a_name_that_is_not_looked_up_now_costs_no_attempt(dsn: str, tmp_path: Path) -> None:
    busy = Busy()
    async with Scraping(dsn, tmp_path, Guard(plain_http=True, resolver=busy)) as scraping:
        view = await scraping.fetch("http://example.com/")

    assert (view.state, view.failures, view.unreachables) == (State.RETRYING, 0, 1)
    assert busy.orgs == [view.org]


async def test_a_certificate_that_nobody_vouches_for_is_tried_again(
    scraping: Scraping, tmp_path: Path
) -> None:
    authority = make_authority(tmp_path)
    async with upstream_server(tls=authority.server_context("localhost")) as server:
        view = await scraping.fetch(server.url(scheme="https"))

        assert (view.state, view.error_code) == (State.RETRYING, "tls_failed")
        assert server.requests == []


async def test_a_page_behind_tls_is_fetched(dsn: str, tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    guard = Guard(parse_allow("127.0.0.1"), resolver=Names(shop__example__com=[["127.0.0.1"]]))
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    tls = authority.server_context("shop.example.com")
    async with (
        upstream_server(plain(b"safe"), tls=tls) as server,
        Scraping(dsn, tmp_path, guard, tls=trusting) as scraping,
    ):
        view = await scraping.fetch(server.url(scheme="https", host="shop.example.com"))

        assert await scraping.body(view) == b"safe"
        assert server.server_names == ["shop.example.com"]


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_connection_lost_before_the_answer_is_tried_again(
    scraping: Scraping, site: UpstreamServer, how: str
) -> None:
    async def lose(request: Request, writer: asyncio.StreamWriter) -> None:
        reset(writer) if how == "reset" else writer.close()

    site.answer = lose
    view = await scraping.fetch(site.url())

    assert (view.state, view.error_code, view.failures) == (State.RETRYING, "connection_lost", 1)
    assert len(site.requests) == 1


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("sent", [10, 1_000_000])
async def test_a_body_that_breaks_off_is_tried_again_and_nothing_of_it_is_kept(
    scraping: Scraping, site: UpstreamServer, how: str, sent: int
) -> None:
    async def break_off(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head("200 OK", (("Content-Length", "2000000"),)) + bytes(sent))
        await writer.drain()
        reset(writer) if how == "reset" else writer.close()

    site.answer = break_off
    view = await scraping.fetch(site.url())

    assert (view.state, view.error_code) == (State.RETRYING, "connection_lost")
    assert await scraping.body(view) is None


async def test_what_is_not_http_is_tried_again(scraping: Scraping, site: UpstreamServer) -> None:
    async def greet(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n\r\n")

    site.answer = greet
    view = await scraping.fetch(site.url())

    assert (view.state, view.error_code) == (State.RETRYING, "connection_lost")


@pytest.mark.parametrize("stage", ["silence", "a body that trickles"])
async def test_a_server_that_takes_too_long_is_tried_again(
    scraping: Scraping, site: UpstreamServer, stage: str
) -> None:
    async def slow(request: Request, writer: asyncio.StreamWriter) -> None:
        if stage == "silence":
            await asyncio.get_running_loop().create_future()
        writer.write(head("200 OK", (("Content-Length", "1000000"),)))
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.01)

    site.answer = slow
    view = await scraping.fetch(site.url(), timeout_seconds=0.5)

    assert (view.state, view.error_code, view.failures) == (State.RETRYING, "timed_out", 1)
    assert scraping.connections_of_this_process(site.port) == 0


async def test_a_refusal_counts_although_its_text_never_comes(
    scraping: Scraping, site: UpstreamServer
) -> None:
    async def hang(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head("404 Not Found", (("Content-Length", "100"),)))
        await writer.drain()
        await asyncio.get_running_loop().create_future()

    site.answer = hang
    view = await scraping.fetch(site.url(), timeout_seconds=30)

    assert (view.state, view.error_code) == (State.FAILED, "http_404")


@pytest.mark.parametrize(
    "url",
    [
        "https://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://127.1/",
        "http://0x7f000001/",
        "http://127.0.0.2/",
        "http://user@127.0.0.1/",
        "http://user:password@127.0.0.1/",
        "http://93.184.215.14:25/",
        "ftp://93.184.215.14/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "//93.184.215.14/",
        "127.0.0.1",
        "http:///path",
        "http://a b/",
        "http://exa\\mple.com/",
        "#",
    ],
)
async def test_what_may_not_be_fetched_fails_at_once(scraping: Scraping, url: str) -> None:
    view = await scraping.fetch(url)

    assert (view.state, view.error_code, view.failures) == (State.FAILED, "url_forbidden", 1)


async def test_a_name_that_leads_inside_is_refused_at_the_connection(
    dsn: str, tmp_path: Path, site: UpstreamServer
) -> None:
    guard = Guard(plain_http=True, resolver=Names(inside__example__com=[["127.0.0.1"]]))
    async with Scraping(dsn, tmp_path, guard) as scraping:
        view = await scraping.fetch(site.url(host="inside.example.com"))

    assert (view.state, view.error_code) == (State.FAILED, "url_forbidden")
    assert site.connections == 0


async def test_pages_of_the_internet_need_no_tls_but_registered_services_do() -> None:
    url = "http://example.com/"
    await Guard(plain_http=True, resolver=every_name_is_public).check_url(url)
    with pytest.raises(Exception, match="must begin with https"):
        await Guard(resolver=every_name_is_public).check_url(url)
