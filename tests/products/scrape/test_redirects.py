"""Redirects are followed, a few of them, each as if it had been asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from coatcheck import State
from coatcheck.egress import Guard
from coatcheck.settings.egress_allow import parse_allow
from tests.egress.names import Names
from tests.egress.upstream_server import Answer, Request, UpstreamServer, plain, upstream_server
from tests.products.scrape.scraping import Scraping, result_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def other() -> AsyncIterator[UpstreamServer]:
    async with upstream_server(plain(b"other")) as server:
        yield server


def redirect(location: str, status: str = "302 Found", body: bytes = b"") -> Answer:
    return plain(body, status, (("Location", location),))


def chain(length: int) -> Answer:
    """/0 leads to /1, and so on; the page is the last."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        at = int(request.target.removeprefix("/"))
        found = plain(b"the end") if at == length else redirect(f"/{at + 1}")
        await found(request, writer)

    return answer


@pytest.mark.parametrize(
    "status",
    [
        "301 Moved Permanently",
        "302 Found",
        "303 See Other",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ],
)
async def test_a_redirect_is_followed_and_the_result_says_where_to(
    scraping: Scraping, site: UpstreamServer, other: UpstreamServer, status: str
) -> None:
    site.answer = redirect(other.url("/there?x=y#part"), status, b"<a>moved</a>")
    view = await scraping.fetch(site.url("/here"))

    result = result_of(view)
    assert (result["url"], result["final_url"]) == (site.url("/here"), other.url("/there?x=y"))
    assert (result["status"], await scraping.body(view)) == (200, b"other")


@pytest.mark.parametrize(
    ("location", "target"),
    [("c", "/a/c"), ("/c?d", "/c?d"), ("../c", "/c"), ("?q=1", "/a/b?q=1"), ("/\xfc x", None)],
)
async def test_a_relative_redirect_is_read_against_the_page(
    scraping: Scraping, site: UpstreamServer, location: str, target: str | None
) -> None:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        first = request.target == "/a/b"
        await (redirect(location) if first else plain(b"found"))(request, writer)

    site.answer = answer
    view = await scraping.fetch(site.url("/a/b"))

    assert view.state is State.COMPLETED
    seen = site.requests[-1].target
    assert seen == target if target is not None else seen.endswith("%20x")
    assert site.connections == 1


async def test_five_redirects_are_followed(scraping: Scraping, site: UpstreamServer) -> None:
    site.answer = chain(5)
    view = await scraping.fetch(site.url("/0"))

    assert result_of(view)["final_url"] == site.url("/5")


async def test_a_sixth_is_not(scraping: Scraping, site: UpstreamServer) -> None:
    site.answer = chain(6)
    view = await scraping.fetch(site.url("/0"))

    assert (view.state, view.error_code, view.failures) == (State.FAILED, "too_many_redirects", 1)
    assert site.requests[-1].target == "/5"


async def test_a_loop_ends(scraping: Scraping, site: UpstreamServer) -> None:
    site.answer = redirect("/")
    view = await scraping.fetch(site.url("/"))

    assert (view.error_code, len(site.requests)) == ("too_many_redirects", 6)


@pytest.mark.parametrize(
    "location",
    [
        "http://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data/",
        "http://[::1]:80/",
        "http://2130706433/",
        "http://user:password@127.0.0.1/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "//127.0.0.2/",
    ],
)
async def test_a_redirect_to_where_nothing_may_be_fetched_fails_the_fetch(
    scraping: Scraping, site: UpstreamServer, location: str
) -> None:
    site.answer = redirect(location)
    view = await scraping.fetch(site.url())

    assert view.state is State.FAILED
    assert view.error_code == "url_forbidden"
    assert len(site.requests) == 1


@pytest.mark.parametrize("location", ["http://[::1", "http://:bad/", "https://"])
async def test_a_redirect_to_nowhere_fails_the_fetch(
    scraping: Scraping, site: UpstreamServer, location: str
) -> None:
    site.answer = redirect(location)
    view = await scraping.fetch(site.url())

    assert view.state is State.FAILED
    assert view.error_code in {"redirect_invalid", "url_forbidden"}


async def test_each_hop_is_resolved_and_checked_anew(
    dsn: str, tmp_path: Path, site: UpstreamServer
) -> None:
    names = Names(
        first__example__com=[["127.0.0.1"]],
        second__example__com=[["93.184.215.14", "10.0.0.1"]],
    )
    guard = Guard(parse_allow("127.0.0.1"), plain_http=True, resolver=names)
    site.answer = redirect("http://second.example.com/")
    async with Scraping(dsn, tmp_path, guard) as scraping:
        view = await scraping.fetch(site.url(host="first.example.com"))

    assert view.error_code == "url_forbidden"
    assert names.asked == ["first.example.com", "second.example.com"]


async def test_credentials_do_not_go_to_another_site(
    scraping: Scraping, site: UpstreamServer, other: UpstreamServer
) -> None:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        leads = "/next" if request.target == "/" else other.url()
        await redirect(leads)(request, writer)

    site.answer = answer
    headers = {"Authorization": "Bearer secret", "COOKIE": "a=b", "X-Own": "1"}
    await scraping.fetch(site.url(), headers=headers)

    first, second, third = *site.requests, *other.requests
    for request in (first, second):
        assert request.header("authorization") == "Bearer secret"
        assert request.header("cookie") == "a=b"
    assert (third.header("authorization"), third.header("cookie")) == (None, None)
    assert third.header("x-own") == "1"


@pytest.mark.parametrize("status", ["304 Not Modified", "300 Multiple Choices", "302 Found"])
async def test_a_redirect_that_leads_nowhere_is_an_end(
    scraping: Scraping, site: UpstreamServer, status: str
) -> None:
    site.answer = plain(status=status)
    view = await scraping.fetch(site.url())

    assert result_of(view)["status"] == int(status[:3])
