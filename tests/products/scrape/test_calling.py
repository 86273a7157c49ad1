"""The service can be called like one that code declares, and nobody else can take its name."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coatcheck.products.scrape.executor import ScrapeExecutor
from tests.deployment import Deployment
from tests.egress.upstream_server import UpstreamServer, plain, upstream_server
from tests.products.gateway import paths
from tests.products.gateway.asking import problem


@pytest.fixture
async def scraped(deployment: Deployment) -> Deployment:
    """The deployment, with a worker that fetches pages."""
    await deployment.start_worker(ScrapeExecutor(deployment.settings).service)
    return deployment


@pytest.fixture
async def page() -> AsyncIterator[UpstreamServer]:
    async with upstream_server(plain(b"<h1>hello</h1>")) as server:
        yield server


async def test_a_fetch_is_handed_in_and_collected_over_http(
    scraped: Deployment, page: UpstreamServer
) -> None:
    answer = await scraped.http.post(
        paths.submit("/fetch", "scrape"), json={"url": page.url("/page")}
    )
    assert answer.status_code == 202, answer.text
    job = (await scraped.http.get(answer.json()["poll_url"], params={"wait": 30})).json()

    assert (job["status"], job["endpoint_key"], job["lane"]) == ("completed", "post__fetch", "bulk")
    assert job["result_summary"]["final_url"] == page.url("/page")
    assert job["result_summary"]["artifact"] == "body"


async def test_a_synchronous_call_answers_with_what_was_found(
    scraped: Deployment, page: UpstreamServer
) -> None:
    answer = await scraped.http.post(paths.call("/fetch", "scrape"), json={"url": page.url()})

    assert (answer.status_code, answer.json()["bytes"]) == (200, 14)


async def test_the_catalogue_lists_it(scraped: Deployment) -> None:
    shown = await scraped.http.get(paths.hosted("scrape"))

    assert shown.status_code == 200, shown.text
    (endpoint,) = shown.json()["definition"]["versions"]["1"]["endpoints"]
    assert (endpoint["method"], endpoint["path"], endpoint["key"], endpoint["lane"]) == (
        "POST",
        "/fetch",
        "post__fetch",
        "bulk",
    )


async def test_its_name_cannot_be_registered(deployment: Deployment) -> None:
    target = {"type": "http", "url": "http://127.0.0.1/"}
    document = {
        "versions": {"1": {"endpoints": [{"method": "POST", "path": "/fetch", "target": target}]}}
    }
    answer = await deployment.http.put(paths.hosted("scrape"), json=document)

    problem(answer, 400, "invalid_parameter")
