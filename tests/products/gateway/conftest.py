from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.databases import Databases
from tests.deployment import Deployment
from tests.products.gateway.docs_service import docs
from tests.products.gateway.tokens import MACHINES, USERS


@pytest.fixture
async def staffed(deployment: Deployment) -> Deployment:
    """The deployment, with a worker for the service ``docs``."""
    await deployment.start_worker(docs)
    return deployment


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    """A deployment with a worker for ``docs``, for all tests of a module that do not mind each
    other. It takes tokens, too.

    Such a module runs on one event loop: ``pytestmark = pytest.mark.asyncio(loop_scope="module")``.
    """
    async with (
        databases.fresh() as dsn,
        Deployment(
            dsn, tmp_path_factory.mktemp("deployment"), jwt_issuers=(USERS, MACHINES)
        ) as opened,
    ):
        await opened.start_worker(docs)
        opened.start_maintenance()
        yield opened


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> str:
    """The name of a gate that only this test knows."""
    name: str = request.node.nodeid
    return name


@pytest.fixture
def key() -> str:
    """An idempotency key that only this test uses."""
    return secrets.token_hex(8)
