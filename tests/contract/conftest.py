from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from examples.ollama_upstream import OllamaUpstream
from tests.contract.chat_resources import CHAT_MODEL, EMBED_MODEL, PICTURE_MODEL
from tests.contract.tenant_resources import TenantResources
from tests.databases import Databases
from tests.deployment import Deployment
from tests.egress.upstream_server import upstream_server

STRIPE_SECRET = "whsec_that_is_only_ever_used_in_tests"


@pytest.fixture
async def resources(dsn: str, tmp_path: Path) -> AsyncIterator[TenantResources]:
    """An resources of the test's own."""
    async with tenant_resources(dsn, tmp_path) as built:
        yield built


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def standing(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[TenantResources]:
    """An resources for all tests of a module, which leave it as it was.

    Such a module runs on one event loop: ``pytestmark = pytest.mark.asyncio(loop_scope="module")``.
    """
    folder = tmp_path_factory.mktemp("resources")
    async with databases.fresh() as dsn, tenant_resources(dsn, folder) as built:
        yield built


@asynccontextmanager
async def tenant_resources(dsn: str, folder: Path) -> AsyncIterator[TenantResources]:
    """On a deployment that serves every route that there is: with billing on, Stripe's as well."""
    served = [CHAT_MODEL, EMBED_MODEL, PICTURE_MODEL]
    async with (
        OllamaUpstream(served, tokens_per_second=0) as models,
        Deployment(
            dsn,
            folder,
            stripe_webhook_secret=STRIPE_SECRET,
            llm_url=models.url,
            speech_remote_url=models.url,  # which refuses to speak
            call_timeout_seconds_max=86_400,  # whatever the document allows is accepted
        ) as deployment,
        upstream_server() as upstream,
    ):
        yield await TenantResources.built(deployment, upstream.url())
