from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.db.rows import connected
from tests.deployment import Deployment
from tests.egress.upstream_server import UpstreamServer, upstream_server
from tests.webhooks.post_office import PostOffice


@pytest.fixture
async def office(deployment: Deployment, dsn: str) -> AsyncIterator[PostOffice]:
    async with connected(dsn) as sql:
        yield PostOffice(deployment, sql)


@pytest.fixture
async def receiver() -> AsyncIterator[UpstreamServer]:
    async with upstream_server() as server:
        yield server
