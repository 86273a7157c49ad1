"""Pages fetched through the operator's proxy, or by a URL template."""

from __future__ import annotations

import asyncio
import io
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio

from coatcheck import JobView, State
from coatcheck.egress import Guard
from coatcheck.settings.egress_allow import parse_allow
from tests.egress.certificates import make_authority
from tests.egress.names import Names, every_name_is_public
from tests.egress.upstream_server import Request, UpstreamServer, plain, upstream_server
from tests.ports import free_port
from tests.products.scrape.proxy import Proxy, forward_proxy
from tests.products.scrape.scraping import Scraping, result_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

PUBLIC = Guard(plain_http=True, resolver=every_name_is_public)


@pytest_asyncio.fixture(loop_scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with forward_proxy() as opened:
        yield opened


def unreachable(view: JobView) -> bool:
    """Whether the try cost nothing."""
    return (view.state, view.error_code, view.failures, view.unreachables) == (
        State.RETRYING,
        "target_unreachable",
        0,
        1,
    )


async def test_a_plain_page_is_asked_of_the_proxy_by_its_whole_url(
    dsn: str, tmp_path: Path, site: UpstreamServer, proxy: Proxy
) -> None:
    async with Scraping(dsn, tmp_path, PUBLIC, gateway=proxy.url()) as scraping:
        url = site.url("/page?a=b", host="shop.example.com")
        view = await scraping.fetch(url)

        assert proxy.asked == [f"GET {url} HTTP/1.1"]
        assert result_of(view)["final_url"] == url
        assert await scraping.body(view) == b"<h1>hello</h1>"
        assert site.requests[0].header("host") == f"shop.example.com:{site.port}"


async def test_a_page_behind_tls_is_fetched_through_a_tunnel(
    dsn: str, tmp_path: Path, proxy: Proxy
) -> None:
    authority = make_authority(tmp_path)
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    tls = authority.server_context("shop.example.com")
    async with (
        upstream_server(plain(b"safe"), tls=tls) as server,
        Scraping(dsn, tmp_path, PUBLIC, gateway=proxy.url(), tls=trusting) as scraping,
    ):
        for _ in range(2):
            view = await scraping.fetch(server.url(scheme="https", host="shop.example.com"))
            assert await scraping.body(view) == b"safe"

        assert proxy.asked == [f"CONNECT shop.example.com:{server.port} HTTP/1.1"]
        assert server.server_names == ["shop.example.com"]
        assert server.requests[0].header("proxy-authorization") is None


async def test_a_certificate_within_a_tunnel_is_checked(
    dsn: str, tmp_path: Path, proxy: Proxy
) -> None:
    tls = make_authority(tmp_path).server_context("shop.example.com")
    async with (
        upstream_server(tls=tls) as server,
        Scraping(dsn, tmp_path, PUBLIC, gateway=proxy.url()) as scraping,
    ):
        view = await scraping.fetch(server.url(scheme="https", host="shop.example.com"))

        assert (view.error_code, view.failures) == ("tls_failed", 1)
        assert server.requests == []


async def test_the_proxys_credentials_are_for_the_proxy_alone(
    dsn: str, tmp_path: Path, site: UpstreamServer, proxy: Proxy
) -> None:
    proxy.credentials = "user:canary-password"
    gateway = proxy.url().replace("http://", "http://user:canary-password@")
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    logging.getLogger().addHandler(handler)
    try:
        async with Scraping(dsn, tmp_path, PUBLIC, gateway=gateway) as scraping:
            view = await scraping.fetch(site.url(host="shop.example.com"))
            assert view.state is State.COMPLETED
            assert site.requests[0].header("proxy-authorization") is None
            assert "canary" not in repr(scraping.settings)
    finally:
        logging.getLogger().removeHandler(handler)
    assert "canary" not in written.getvalue()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_refuses_our_credentials_costs_no_attempt(
    dsn: str, tmp_path: Path, site: UpstreamServer, proxy: Proxy, scheme: str
) -> None:
    proxy.credentials = "user:other"
    async with Scraping(dsn, tmp_path, PUBLIC, gateway=proxy.url()) as scraping:
        view = await scraping.fetch(site.url(scheme=scheme, host="shop.example.com"))

    assert unreachable(view)
    assert "credentials" in (view.error_message or "")
    assert site.connections == 0


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("gateway", ["http://127.0.0.1:{}", "http://127.0.0.1:{}/?u={{url}}"])
async def test_a_gateway_that_is_down_costs_no_attempt(
    dsn: str, tmp_path: Path, scheme: str, gateway: str
) -> None:
    gateway = gateway.format(free_port())
    async with Scraping(dsn, tmp_path, PUBLIC, gateway=gateway) as scraping:
        view = await scraping.fetch(f"{scheme}://shop.example.com/")

    assert unreachable(view)


async def test_a_server_that_the_proxy_cannot_reach_costs_one(
    dsn: str, tmp_path: Path, proxy: Proxy
) -> None:
    proxy.refusal = "502 Bad Gateway"
    async with Scraping(dsn, tmp_path, PUBLIC, gateway=proxy.url()) as scraping:
        tunnelled = await scraping.fetch("https://shop.example.com/")
        plain_page = await scraping.fetch(f"http://shop.example.com:{free_port()}/")

    assert (tunnelled.error_code, tunnelled.failures) == ("gateway_refused", 1)
    assert (plain_page.error_code, plain_page.failures) == ("http_502", 1)


async def test_a_template_is_sent_the_pages_url_percent_encoded(
    dsn: str, tmp_path: Path, site: UpstreamServer
) -> None:
    gateway = site.url("/render/{url}?key=canary-key&full=1")
    async with Scraping(dsn, tmp_path, PUBLIC, gateway=gateway) as scraping:
        url = "https://shop.example.com/a?b=c&d=%20e"
        view = await scraping.fetch(url, headers={"X-Own": "1"})

        (request,) = site.requests
        assert request.target == (
            "/render/https%3A%2F%2Fshop.example.com%2Fa%3Fb%3Dc%26d%3D%2520e?key=canary-key&full=1"
        )
        assert request.header("x-own") == "1"
        result = result_of(view)
        assert (result["url"], result["final_url"]) == (url, url)
        assert b"canary" not in (view.result or b"")
        assert await scraping.body(view) == b"<h1>hello</h1>"


async def test_a_redirect_that_a_template_passes_on_is_followed_through_it(
    dsn: str, tmp_path: Path, site: UpstreamServer
) -> None:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        (url,) = parse_qs(urlsplit(request.target).query)["u"]
        moved = plain(status="301 Moved Permanently", headers=(("Location", "/b"),))
        await (moved if url.endswith("/a") else plain(url.encode()))(request, writer)

    site.answer = answer
    async with Scraping(dsn, tmp_path, PUBLIC, gateway=site.url("/?u={url}")) as scraping:
        view = await scraping.fetch("https://shop.example.com/a")

        assert result_of(view)["final_url"] == "https://shop.example.com/b"
        assert await scraping.body(view) == b"https://shop.example.com/b"


@pytest.mark.parametrize("kind", ["proxy", "template"])
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "https://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1:8080/",
        "http://[fd00::1]/",
        "http://2130706433/",
        "http://inside.example.com/",
        "http://localhost/",
        "http://db.internal/",
        "http://user@shop.example.com/",
        "file:///etc/passwd",
    ],
)
async def test_no_gateway_is_asked_for_what_may_not_be_fetched(
    dsn: str, tmp_path: Path, proxy: Proxy, kind: str, url: str
) -> None:
    names = Names(inside__example__com=[["93.184.215.14", "192.168.0.1"]])
    guard = Guard(plain_http=True, resolver=names)
    gateway = proxy.url() + ("/{url}" if kind == "template" else "")
    async with Scraping(dsn, tmp_path, guard, gateway=gateway) as scraping:
        view = await scraping.fetch(url)

    assert (view.state, view.error_code, view.failures) == (State.FAILED, "url_forbidden", 1)
    assert proxy.connections == 0


async def test_a_redirect_through_a_proxy_is_checked_before_it_is_asked_for(
    dsn: str, tmp_path: Path, site: UpstreamServer, proxy: Proxy
) -> None:
    site.answer = plain(status="302 Found", headers=(("Location", "http://10.0.0.1/"),))
    async with Scraping(dsn, tmp_path, PUBLIC, gateway=proxy.url()) as scraping:
        view = await scraping.fetch(site.url(host="shop.example.com"))

    assert (view.state, view.error_code) == (State.FAILED, "url_forbidden")
    assert len(proxy.asked) == 1


async def test_a_name_that_only_the_proxy_knows_is_left_to_it(
    dsn: str, tmp_path: Path, site: UpstreamServer, proxy: Proxy
) -> None:
    guard = Guard(plain_http=True, resolver=Names())
    async with Scraping(dsn, tmp_path, guard, gateway=proxy.url()) as scraping:
        view = await scraping.fetch(site.url(host="shop.example.com"))

    assert view.state is State.COMPLETED


async def test_what_the_operator_allows_may_be_fetched_through_a_proxy_too(
    dsn: str, tmp_path: Path, site: UpstreamServer, proxy: Proxy
) -> None:
    guard = Guard(parse_allow("127.0.0.1"), plain_http=True)
    async with Scraping(dsn, tmp_path, guard, gateway=proxy.url()) as scraping:
        view = await scraping.fetch(site.url())

    assert view.state is State.COMPLETED
    assert len(proxy.asked) == 1
