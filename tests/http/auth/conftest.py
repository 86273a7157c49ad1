"""What tests of credentials begin with: an organisation on a database of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.db.connection import Connection
from coatcheck.settings import Settings
from tests.http.auth.replicas import PEPPER, Replica, new_org, replica


@pytest.fixture
def settings(dsn: str, tmp_path: Path) -> Settings:
    return Settings(database_url=dsn, key_pepper=PEPPER, blob_url=(tmp_path / "blobs").as_uri())


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    """A connection to arrange things by, with the organisation ``acme`` there."""
    opened = Connection(dsn, name="test arranging")
    await new_org(opened)
    yield opened
    await opened.close()


@pytest.fixture
async def one(settings: Settings, line: Connection) -> AsyncIterator[Replica]:
    async with replica(settings) as started:
        yield started


@pytest.fixture
async def another(settings: Settings, line: Connection) -> AsyncIterator[Replica]:
    async with replica(settings) as started:
        yield started
