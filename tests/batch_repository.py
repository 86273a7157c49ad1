"""The batches of an engine on a test's database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from coatcheck import Engine, Settings
from coatcheck.products.batches.repository import BatchRepository


@asynccontextmanager
async def open_batches(dsn: str, folder: Path) -> AsyncIterator[BatchRepository]:
    """Opens an engine, whose pool runs what they do."""
    blob_url = (folder / "engine blobs").as_uri()
    settings = Settings(database_url=dsn, blob_url=blob_url, temp_dir=folder / "engine temp")
    async with await Engine.connect(settings) as engine:
        yield engine.extension(BatchRepository)


@pytest.fixture
async def batches(dsn: str, tmp_path: Path) -> AsyncIterator[BatchRepository]:
    async with open_batches(dsn, tmp_path) as opened:
        yield opened
