"""What tests of maintenance begin with: connections to their database, and a blob store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.db.connection import PINNED_PLANS, Connection
from tests.batch_repository import batches
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import connected

__all__ = ["batches"]


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[AsyncpgConnection]:
    async with connected(dsn) as opened:
        yield opened


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="test", server_settings=PINNED_PLANS)
    yield opened
    await opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def blobs(folder: Path) -> BlobContainer:
    return BlobContainer.open(folder.as_uri())
