"""A laboratory for each test: see laboratory.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.migrate import migrate
from tests.e2e.faults.laboratory import Laboratory


@pytest.fixture
async def laboratory(dsn: str, tmp_path: Path) -> AsyncIterator[Laboratory]:
    """An engine here, and processes on the same database, all ended with the test."""
    async with Laboratory(dsn, tmp_path) as opened:
        yield opened


@pytest.fixture
async def laboratory_on_own_server(
    pg_server: EmbeddedPostgres, tmp_path: Path
) -> AsyncIterator[Laboratory]:
    """As ``laboratory``, on the server that ``pg_server`` can stop, kill and start again."""
    await migrate(pg_server.dsn)
    async with Laboratory(pg_server.dsn, tmp_path) as opened:
        yield opened
        if not pg_server.is_running():
            await asyncio.to_thread(pg_server.start)  # so that everything can end in good order
