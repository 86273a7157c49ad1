from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from coatcheck.domain.lanes import Lane
from coatcheck.domain.tenants import USER_SCOPES
from tests.databases import Databases
from tests.deployment import Deployment
from tests.products.console.callers import Caller
from tests.products.console.chores_service import chores

OPERATOR_ORG = "operators"
NOBODY_LISTENS = "http://127.0.0.1:9"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    """A deployment with a worker for ``chores``, but for the lane ``bulk``, and with operators: for
    all tests of a module that do not mind each other.

    Such a module runs on one event loop: ``pytestmark = pytest.mark.asyncio(loop_scope="module")``.
    """
    async with (
        databases.fresh() as dsn,
        Deployment(
            dsn,
            tmp_path_factory.mktemp("deployment"),
            operator_org=OPERATOR_ORG,
            lane_concurrency={Lane.URGENT: 4, Lane.STANDARD: 10, Lane.BULK: 0},
            llm_url=NOBODY_LISTENS,
        ) as opened,
    ):
        await opened.create_org(OPERATOR_ORG)
        await opened.start_worker(chores)
        opened.start_maintenance()
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def org(shared: Deployment) -> str:
    """An organisation of the test's own."""
    name = f"org-{secrets.token_hex(4)}"
    await shared.create_org(name)
    return name


@pytest_asyncio.fixture(loop_scope="module")
async def admin(shared: Deployment, org: str) -> Caller:
    return Caller(shared, org, await shared.create_key(org, "ada"))


@pytest_asyncio.fixture(loop_scope="module")
async def user(shared: Deployment, org: str) -> Caller:
    return Caller(shared, org, await shared.create_key(org, "bob", USER_SCOPES))


@pytest_asyncio.fixture(loop_scope="module")
async def operator(shared: Deployment, org: str) -> Caller:
    """Somebody who operates the deployment, and looks after the test's organisation."""
    return Caller(shared, org, await shared.create_key(OPERATOR_ORG, "olga"))
