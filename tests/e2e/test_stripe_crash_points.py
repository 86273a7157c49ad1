"""Kills a server at each crash point of metering; Stripe counts the usage once all the same.

After the events were made, and before any was sent: they are sent once. After they were sent, and
before that was noted: they are sent twice, under one identifier.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.crash_points import VICTIM
from tests.deployment import Deployment
from tests.e2e.faults.roles import start_role
from tests.maintenance.fake_stripe import KEY, FakeStripe, fake_stripe
from tests.waiting import eventually_async

STRIPE_POINTS = {"stripe.collected": 1, "stripe.sent_not_marked": 2}
"""Each point, and how often the event is sent."""
SETTINGS = {"stripe_api_key": KEY, "stripe_meters": "completed=jobs_completed"}
USED = """
INSERT INTO usage_hours (org_id, hour, completed, failed, cancelled, attempts, payload_bytes,
                         result_bytes, run_seconds, endpoint, flow)
VALUES ('acme', date_trunc('hour', now() - interval '3 hours', 'UTC'), 7, 0, 0, 7, 0, 0, 0, 'e', '')
"""
LINKED = """
INSERT INTO orgs (org_id, name, subscription, stripe_customer, stripe_metered_from)
VALUES ('acme', 'acme', 'active', 'cus_1', now() - interval '1 day')
"""
STATUS = "SELECT status FROM stripe_meter_events"


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path, servers=0) as opened:
        yield opened


@pytest.fixture
async def stripe() -> AsyncIterator[FakeStripe]:
    async with fake_stripe() as running:
        yield running


@pytest.mark.crash
@pytest.mark.parametrize("point", sorted(STRIPE_POINTS))
async def test_usage_is_counted_once_after_a_crash_at(
    deployment: Deployment, stripe: FakeStripe, point: str
) -> None:
    await deployment.sql.execute(LINKED)
    await deployment.sql.execute(USED)
    process = start_role(deployment, "meter", stripe.url, crash_at=f"{point}:1", **SETTINGS)
    await deployment.strike(process)
    if VICTIM.is_exact:
        assert len(stripe.server.requests) == STRIPE_POINTS[point] - 1
        assert await deployment.sql.fetchval(STATUS) == "pending"
        # Whoever was sending it is taken for dead: let it be due now, by the database's clock.
        await deployment.sql.execute("UPDATE stripe_meter_events SET due_at = now()")
    other = start_role(deployment, "meter", stripe.url, **SETTINGS)

    async def acknowledged() -> bool:
        return bool(await deployment.sql.fetchval(STATUS) == "acknowledged")

    await eventually_async(acknowledged, "Stripe has the usage")
    await other.says("ready")
    assert await other.terminate() == 0, other.log
    assert VICTIM.allows(len(stripe.server.requests), STRIPE_POINTS[point])
    assert len({request.body for request in stripe.server.requests}) == 1
    assert stripe.sum_of("jobs_completed") == 7
    assert await deployment.sql.fetchval("SELECT count(*) FROM stripe_meter_events") == 1
    print(f"{point}: {VICTIM.value} struck there, sent {len(stripe.server.requests)} times")
