"""A deployment with its dashboard, and a browser, for all the tests of a worker.

They live on one event loop, so a module of tests here says that it does, too:
``pytestmark = pytest.mark.asyncio(loop_scope="session")``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from coatcheck.dashboard import pages
from tests.browser.chromium import Complaints, find_chromium, open_chromium
from tests.browser.errands_service import errands
from tests.browser.signing_in import visiting
from tests.browser.windows import Watch, Windows
from tests.databases import Databases
from tests.deployment import Deployment

OpenPage = Callable[..., Awaitable[Page]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def deployment(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    """A deployment with a worker and the upkeep, whose key is an operator's."""
    async with databases.fresh() as dsn:
        folder = tmp_path_factory.mktemp("deployment")
        async with Deployment(
            dsn, folder, pages=pages.routes, operator_org="default"
        ) as deployment:
            await deployment.start_worker(errands)
            await deployment.start_batches_worker()
            deployment.start_maintenance()
            yield deployment


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    executable = find_chromium()
    if executable is None:
        pytest.fail("there is no Chromium: run `make browser`, or install it")
    async with open_chromium(executable) as browser:
        yield browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def windows(base_url: str, browser: Browser) -> Windows:
    return Windows(browser, base_url)


@pytest_asyncio.fixture(loop_scope="session")
async def complaints() -> AsyncIterator[Complaints]:
    """What the consoles of the test's pages say; the test fails if there is anything."""
    complaints = Complaints()
    yield complaints
    assert complaints.unexpected() == []


@pytest.fixture(scope="session")
def base_url(deployment: Deployment) -> str:
    return str(deployment.http.base_url).rstrip("/")


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(
    deployment: Deployment, windows: Windows, complaints: Complaints
) -> AsyncIterator[OpenPage]:
    """Opens pages: ``await open_page("/ui/jobs")``; ``key=None`` for nobody's, ``viewport=PHONE``
    and what else a Playwright context takes."""
    async with AsyncExitStack() as opened:

        async def open_(path: str, *, key: str | None = deployment.key, **options: Any) -> Page:
            page = await windows.open(key, **options)
            opened.push_async_callback(windows.leave, page, key, **options)
            opened.callback(Watch(page, complaints).end)
            await page.goto(path)
            return page

        yield open_


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(base_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client without a credential, which follows no redirect."""
    async with visiting(base_url) as client:
        yield client
