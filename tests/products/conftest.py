from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.products.house import House


@pytest.fixture
async def house(dsn: str, tmp_path: Path) -> AsyncIterator[House]:
    async with House(dsn, tmp_path) as opened:
        yield opened
