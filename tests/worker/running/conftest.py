"""A workshop for each test: see tests/worker/workshop.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worker.workshop import Workshop


@pytest.fixture
async def workshop(dsn: str, tmp_path: Path) -> AsyncIterator[Workshop]:
    """An engine on a database of the test's own. Upkeep and workers start when the test says."""
    async with Workshop(dsn, tmp_path) as opened:
        yield opened
