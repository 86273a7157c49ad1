from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contract.job_resource.caller import Caller
from tests.contract.job_resource.drivers import DRIVERS, Driver, contract
from tests.contract.job_resource.served import Served, serve
from tests.databases import Databases
from tests.distributions import installed_here
from tests.echo_product import write_echo


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    """One deployment for all tests of the suite, each of which has an organisation of its own."""
    folder = tmp_path_factory.mktemp("served")
    with installed_here(write_echo(tmp_path_factory.mktemp("echo"))):
        async with databases.fresh() as dsn, serve(dsn, folder, contract) as opened:
            yield opened


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    """Each product in turn."""
    found: Driver = request.param
    return found


@pytest_asyncio.fixture(loop_scope="module")
async def caller(served: Served) -> AsyncIterator[Caller]:
    """An admin of an organisation of the test's own."""
    org = await served.new_org()
    opened = Caller(served, org, "ada", await served.deployment.create_key(org, "ada"))
    yield opened
    await opened.clear()


@pytest_asyncio.fixture(loop_scope="module")
async def stranger(served: Served) -> AsyncIterator[Caller]:
    """An admin of another organisation."""
    org = await served.new_org()
    opened = Caller(served, org, "eve", await served.deployment.create_key(org, "eve"))
    yield opened
    await opened.clear()
