"""What a task may say, and what is refused of it."""

from __future__ import annotations

from typing import Any

import pytest

from coatcheck import State
from tests.egress.upstream_server import UpstreamServer
from tests.products.scrape.scraping import FETCH, Scraping

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"method": "POST"}, "method"),
        ({"method": "get"}, "method"),
        ({"headers": ["a"]}, "headers"),
        ({"headers": {"Host": "other"}}, "headers.host"),
        ({"headers": {"Connection": "close"}}, "headers.connection"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "headers.transfer-encoding"),
        ({"headers": {"Content-Length": "5"}}, "headers.content-length"),
        ({"headers": {"Proxy-Authorization": "Basic x"}}, "headers.proxy-authorization"),
        ({"headers": {"Accept-Encoding": "br"}}, "headers.accept-encoding"),
        ({"headers": {"X": "a\r\nHost: other"}}, "headers.x"),
        ({"headers": {"X": "a\x00"}}, "headers.x"),
        ({"headers": {"X": "\u4e2d"}}, "headers.x"),
        ({"headers": {"a b": "c"}}, "headers"),
        ({"headers": {"": "c"}}, "headers"),
        ({"headers": {"X": "y" * 20_000}}, "headers"),
        ({"headers": {f"X-{n}": "y" for n in range(51)}}, "headers"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": 601}, "timeout_seconds"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_bytes": 10 * 1024 * 1024 + 1}, "max_bytes"),
        ({"max_bytes": 1.5}, "max_bytes"),
        ({"extra": 1}, "extra"),
        ({"url": ""}, "url"),
        ({"url": "http://127.0.0.1/" + "a" * 8_200}, "url"),
        ({"url": None}, "url"),
    ],
)
async def test_a_field_that_is_wrong_fails_the_task_and_is_named(
    scraping: Scraping, site: UpstreamServer, fields: dict[str, Any], named: str
) -> None:
    task = {"url": site.url(), **fields}
    view = await scraping.wait_for_end(await scraping.engine.submit(FETCH, task, retries=3))

    assert (view.state, view.error_code, view.failures) == (State.FAILED, "invalid_input", 1)
    assert (view.error_message or "").startswith(f"{named}: ")
    assert site.connections == 0


async def test_a_task_needs_a_url(scraping: Scraping) -> None:
    view = await scraping.wait_for_end(await scraping.engine.submit(FETCH, {}, retries=3))

    assert (view.state, view.error_code) == (State.FAILED, "invalid_input")


async def test_a_long_url_is_fetched(scraping: Scraping, site: UpstreamServer) -> None:
    path = "/" + "a" * 8_000
    view = await scraping.fetch(site.url(path))

    assert view.state is State.COMPLETED
    assert site.requests[0].target == path
