"""What a request came with as its ``traceparent`` goes to the upstream and to the webhook."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.maintenance.webhooks import WebhookDeliverer
from coatcheck.telemetry.traceparents import trace_id_of
from tests.all_products import payloads
from tests.deployment import Deployment
from tests.egress.upstream_server import UpstreamServer, upstream_server
from tests.products.gateway import paths
from tests.waiting import eventually_async

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"


@pytest.fixture
async def upstream() -> AsyncIterator[UpstreamServer]:
    async with upstream_server() as server:
        yield server


async def test_the_upstream_and_the_receiver_of_the_webhook_get_the_trace(
    dsn: str, tmp_path: Path, upstream: UpstreamServer
) -> None:
    async with Deployment(dsn, tmp_path) as deployment:
        target = {"type": "http", "url": upstream.url("/upstream")}
        endpoint = {"method": "POST", "path": "/thing", "target": target}
        registered = await deployment.http.put(
            paths.hosted("far"), json={"versions": {"1": {"endpoints": [endpoint]}}}
        )
        assert registered.is_success, registered.text
        await deployment.start_gateway_worker()
        deliverer = WebhookDeliverer(
            deployment.settings, payloads(deployment.context).body, deployment.engine.database
        )
        await deliverer.begin()
        try:
            for headers in ({"traceparent": TRACEPARENT}, {}):
                answer = await deployment.http.post(
                    paths.submit("/thing", "far"),
                    json={},
                    headers={"X-Webhook-Url": upstream.url("/webhook"), **headers},
                )
                assert answer.status_code == 202, answer.text

            async def told() -> bool:
                return len(upstream.requests) == 4

            await eventually_async(told, "both upstream calls and both webhooks were made")
        finally:
            await deliverer.stop()
    for path in ("/upstream", "/webhook"):
        sent = [
            trace_id_of(request.header("traceparent"))
            for request in upstream.requests
            if request.target.startswith(path)
        ]
        assert sorted(sent, key=str) == [TRACE_ID, None]
