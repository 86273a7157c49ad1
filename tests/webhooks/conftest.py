from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.deployment import Deployment
from tests.egress.upstream_server import UpstreamServer, upstream_server
from tests.webhooks.webhook_deliveries import WebhookDeliveries


@pytest.fixture
def hooks(deployment: Deployment) -> WebhookDeliveries:
    return WebhookDeliveries(deployment)


@pytest.fixture
async def receiver() -> AsyncIterator[UpstreamServer]:
    async with upstream_server() as server:
        yield server
