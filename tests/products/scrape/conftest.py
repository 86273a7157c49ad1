from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.databases import Databases
from tests.egress.upstream_server import UpstreamServer, plain, upstream_server
from tests.products.scrape.scraping import Scraping


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scraping(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scraping]:
    """A worker that fetches pages, for all tests of a module: they do not mind each other.

    Such a module runs on one event loop: ``pytestmark = pytest.mark.asyncio(loop_scope="module")``.
    """
    async with (
        databases.fresh() as dsn,
        Scraping(dsn, tmp_path_factory.mktemp("scraping")) as opened,
    ):
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def site() -> AsyncIterator[UpstreamServer]:
    """A site on loopback with one page."""
    page = plain(b"<h1>hello</h1>", headers=(("Content-Type", "text/html; charset=utf-8"),))
    async with upstream_server(page) as server:
        yield server
