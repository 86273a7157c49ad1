"""Kills a server at each crash point of a delivery; the receiver is told all the same.

Before the post: once. After it was answered, and before that was noted: twice, under one id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coatcheck.core.webhooks import WebhookSecrets
from tests.crash_points import VICTIM
from tests.deployment import PEPPER, Deployment
from tests.e2e.faults.roles import payload, start_role
from tests.egress.upstream_server import UpstreamServer, upstream_server
from tests.waiting import eventually_async
from tests.webhooks.webhook_deliveries import verified

WEBHOOK_POINTS = {"webhook.before_post": 1, "webhook.after_2xx": 2}
"""Each point, and how often the receiver is told."""
SETTINGS = {"key_pepper": PEPPER, "egress_allow": "127.0.0.1"}
STATUS = "SELECT status FROM webhook_deliveries"


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path, servers=0) as opened:
        yield opened


@pytest.fixture
async def receiver() -> AsyncIterator[UpstreamServer]:
    async with upstream_server() as server:
        yield server


@pytest.mark.crash
@pytest.mark.parametrize("point", sorted(WEBHOOK_POINTS))
async def test_a_webhook_is_delivered_after_a_crash_at(
    deployment: Deployment, receiver: UpstreamServer, point: str
) -> None:
    ticket = await deployment.engine.submit(
        "lab.post__note", payload(deployment), delay=3_600, webhook_url=receiver.url()
    )
    await deployment.engine.cancel(ticket.id)
    process = start_role(deployment, "deliver", crash_at=f"{point}:1", **SETTINGS)
    await deployment.strike(process)
    if VICTIM.is_exact:
        assert len(receiver.requests) == WEBHOOK_POINTS[point] - 1
        assert await deployment.sql.fetchval(STATUS) == "pending"
        # Its server is taken for dead: let the lease end now, by the database's clock.
        await deployment.sql.execute("UPDATE webhook_deliveries SET due_at = now()")
    other = start_role(deployment, "deliver", **SETTINGS)

    async def delivered() -> bool:
        return bool(await deployment.sql.fetchval(STATUS) == "delivered")

    await eventually_async(delivered, "the delivery is noted")
    await other.says("ready")
    assert await other.terminate() == 0, other.log
    assert VICTIM.allows(len(receiver.requests), WEBHOOK_POINTS[point])
    assert len({request.header("webhook-id") for request in receiver.requests}) == 1
    secret = WebhookSecrets(PEPPER).text("default", 1)
    bodies = [verified(request, secret) for request in receiver.requests]
    assert all(body["data"]["id"] == ticket.id for body in bodies)
    tries = await deployment.sql.fetchval("SELECT tries FROM webhook_deliveries")
    assert tries == 1, "a crash is no try of the receiver's"
    print(f"{point}: {VICTIM.value} struck there, told {len(receiver.requests)} times")
