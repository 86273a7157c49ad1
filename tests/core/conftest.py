"""An engine on a database of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.core import Engine
from coatcheck.settings import Settings
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import connected


@pytest.fixture
def settings(dsn: str, tmp_path: Path) -> Settings:
    return Settings(database_url=dsn, blob_url=(tmp_path / "blobs").as_uri())


@pytest.fixture
async def engine(settings: Settings) -> AsyncIterator[Engine]:
    async with Engine(settings) as started:
        yield started


@pytest.fixture
async def rival_engine(settings: Settings) -> AsyncIterator[Engine]:
    """Another replica on the same database."""
    async with Engine(settings) as started:
        yield started


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[AsyncpgConnection]:
    """A plain connection to the test's database."""
    async with connected(dsn) as open_connection:
        yield open_connection
