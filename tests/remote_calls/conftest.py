"""Jobs that are done by a remote whose work a test ends, on a real database and blob store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.remote_calls.render_deployment import RenderDeployment
from tests.remotes.fake_http import FakeHttp


@pytest_asyncio.fixture
async def remote() -> AsyncIterator[FakeHttp]:
    async with FakeHttp.running() as fake:
        yield fake


@pytest_asyncio.fixture
async def deployment(dsn: str, tmp_path: Path, remote: FakeHttp) -> AsyncIterator[RenderDeployment]:
    async with RenderDeployment(dsn, tmp_path, remote) as opened:
        yield opened
