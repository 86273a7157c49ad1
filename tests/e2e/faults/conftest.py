"""A deployment whose workers are processes, for each test: see roles.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.migrate import migrate
from tests.deployment import Deployment


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    """An engine here, and processes on the same database, all ended with the test."""
    async with Deployment(dsn, tmp_path, servers=0) as opened:
        yield opened


@pytest.fixture
async def deployment_on_own_server(
    pg_server: EmbeddedPostgres, tmp_path: Path
) -> AsyncIterator[Deployment]:
    """As ``deployment``, on the server that ``pg_server`` can stop, kill and start again."""
    await migrate(pg_server.dsn)
    async with Deployment(pg_server.dsn, tmp_path, servers=0) as opened:
        yield opened
        if not pg_server.is_running():
            await asyncio.to_thread(pg_server.start)  # so that everything can end in good order
