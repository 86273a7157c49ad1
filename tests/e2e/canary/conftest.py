"""A deployment of the test's own, where nothing runs yet."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.canary.canary_deployment import CanaryDeployment, CanaryProcesses


@pytest.fixture
def key() -> str:
    """An idempotency key of the test's own."""
    return secrets.token_hex(8)


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[CanaryDeployment]:
    """On a site of the test's own, where nothing runs yet."""
    async with deployed(dsn, tmp_path) as opened:
        yield opened


@asynccontextmanager
async def deployed(dsn: str, folder: Path, **variables: str) -> AsyncIterator[CanaryDeployment]:
    site = CanaryProcesses(dsn, folder, **variables)
    await site.furnish()
    async with CanaryDeployment(site) as opened:
        yield opened
