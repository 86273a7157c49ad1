from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.databases import Databases
from tests.deployment import Deployment
from tests.products.batches.sums import sums
from tests.products.gateway.tokens import MACHINES, USERS


@pytest.fixture
async def working_deployment(deployment: Deployment) -> Deployment:
    """A deployment where tasks are done, lists are taken in, and runs complete."""
    await deployment.start_worker(sums)
    await deployment.start_batches_worker()
    deployment.start_maintenance()
    return deployment


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    """A deployment that knows ``sums``, for all tests of a module that do not mind each other. It
    takes tokens, too. It has no worker.

    Such a module runs on one event loop: ``pytestmark = pytest.mark.asyncio(loop_scope="module")``.
    """
    async with (
        databases.fresh() as dsn,
        Deployment(
            dsn, tmp_path_factory.mktemp("deployment"), jwt_issuers=(USERS, MACHINES)
        ) as opened,
    ):
        await opened.stop_worker(await opened.start_worker(sums))
        yield opened
