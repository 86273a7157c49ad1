from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.databases import Databases
from tests.deployment import Deployment

NOBODY_LISTENS = "http://127.0.0.1:9"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def waiting(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    """A deployment with a target that is set, and no worker that calls it: its jobs wait.

    For all tests of a module that do not mind each other. Such a module runs on one event loop:
    ``pytestmark = pytest.mark.asyncio(loop_scope="module")``.
    """
    folder = tmp_path_factory.mktemp("deployment")
    async with (
        databases.fresh() as dsn,
        Deployment(dsn, folder, llm_url=NOBODY_LISTENS) as opened,
    ):
        yield opened


@pytest.fixture
def key() -> str:
    """An idempotency key that only this test uses."""
    return secrets.token_hex(8)
