"""A deployment without a server for each test: an engine, and workers that the test starts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.deployment import Deployment


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    """An engine on a database of the test's own. Maintenance and workers start on demand."""
    async with Deployment(dsn, tmp_path, servers=0) as opened:
        yield opened
