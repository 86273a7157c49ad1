from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.postgres_keeper import Databases, run
from tests.products.batches.sums import sums
from tests.products.gateway.tokens import MACHINES, USERS
from tests.products.house import House


@pytest.fixture
async def working_house(house: House) -> House:
    """A house where tasks are done, lists are taken in, and runs complete."""
    await house.work(sums)
    await house.take_in_lists()
    house.keep_up()
    return house


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[House]:
    """A house that knows ``sums``, for all tests of a module that do not mind each other. It takes
    tokens, too. Nobody works there.

    Such a module runs on one event loop: ``pytestmark = pytest.mark.asyncio(loop_scope="module")``.
    """
    name = f"test_{secrets.token_hex(8)}"
    await run(databases.maintenance_dsn, f"CREATE DATABASE {name} TEMPLATE {databases.template}")
    async with House(
        databases.dsn_of(name), tmp_path_factory.mktemp("house"), jwt_issuers=(USERS, MACHINES)
    ) as opened:
        await opened.dismiss(await opened.work(sums))
        yield opened
    await run(databases.maintenance_dsn, f"DROP DATABASE {name} WITH (FORCE)")
