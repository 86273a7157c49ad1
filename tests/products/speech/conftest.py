from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.databases import Databases
from tests.products.speech.speech_deployment import SpeechDeployment, speech_deployment


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def speech(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SpeechDeployment]:
    """A deployment that speaks, with a worker, for all tests of a module that can share it.

    Such a module runs on one event loop: ``pytestmark = pytest.mark.asyncio(loop_scope="module")``.
    """
    folder = tmp_path_factory.mktemp("speech")
    async with databases.fresh() as dsn, speech_deployment(dsn, folder) as opened:
        await opened.deployment.create_org("other")
        await opened.deployment.start_remote_worker()
        yield opened
