from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.db.rows import connected
from tests.egress.upstream_server import UpstreamServer, upstream_server
from tests.products.house import House
from tests.webhooks.post_office import PostOffice


@pytest.fixture
async def house(dsn: str, tmp_path: Path) -> AsyncIterator[House]:
    async with House(dsn, tmp_path) as opened:
        yield opened


@pytest.fixture
async def office(house: House, dsn: str) -> AsyncIterator[PostOffice]:
    async with connected(dsn) as sql:
        yield PostOffice(house, sql)


@pytest.fixture
async def receiver() -> AsyncIterator[UpstreamServer]:
    async with upstream_server() as server:
        yield server
