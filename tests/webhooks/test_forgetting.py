"""What is kept of webhooks: a week of the log, and no URL that nothing refers to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coatcheck.core.queries import webhooks
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.webhooks import LOG_SECONDS, UNUSED_TARGET_SECONDS
from coatcheck.maintenance.retention import WebhookPruner
from tests.egress.upstream_server import UpstreamServer
from tests.webhooks.webhook_deliveries import WebhookDeliveries


@pytest.fixture
async def keeper(dsn: str) -> AsyncIterator[WebhookPruner]:
    line = Connection(dsn, name="keeping", server_settings=PINNED_PLANS)
    yield WebhookPruner(line)
    await line.close()


async def age(hooks: WebhookDeliveries, table: str, column: str, seconds: float) -> None:
    await hooks.sql.execute(
        f"UPDATE {table} SET {column} = {column} - $1 * interval '1 second'", float(seconds)
    )


async def count(hooks: WebhookDeliveries, table: str) -> int:
    rows: int = await hooks.sql.fetchval(f"SELECT count(*) FROM {table}")
    return rows


async def test_what_has_ended_is_kept_for_a_week(
    hooks: WebhookDeliveries, receiver: UpstreamServer, keeper: WebhookPruner
) -> None:
    await hooks.ended(receiver.url())
    waiting = await hooks.put(receiver.url("/later"))
    await hooks.sql.execute(
        "UPDATE webhook_deliveries SET due_at = now() + interval '1 day' WHERE id = $1", waiting
    )
    async with hooks.deliverer() as deliverer:
        await hooks.deliver_due(deliverer)
    await age(hooks, "webhook_deliveries", "ended_at", LOG_SECONDS - 60)
    await keeper.tick()
    assert await count(hooks, "webhook_deliveries") == 2
    await age(hooks, "webhook_deliveries", "ended_at", 60)
    await keeper.tick()
    assert await count(hooks, "webhook_deliveries") == 1
    assert await hooks.status_of(waiting) == "pending"


async def test_who_is_told_is_forgotten_with_the_job(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    await hooks.ended(receiver.url())
    assert await count(hooks, "job_webhooks") == 1
    await hooks.forget_jobs()
    assert await count(hooks, "job_webhooks") == 0
    assert await count(hooks, "webhook_deliveries") == 1, "it is still to be told"


async def test_a_url_is_forgotten_once_nothing_refers_to_it(
    hooks: WebhookDeliveries, receiver: UpstreamServer, keeper: WebhookPruner
) -> None:
    await hooks.submit(receiver.url(), delay=3_600)
    for refers in ("job_webhooks", "webhook_deliveries", None):
        if refers == "webhook_deliveries":
            await hooks.put(receiver.url())
            await hooks.sql.execute("DELETE FROM job_webhooks")
        elif refers is None:
            await hooks.sql.execute("DELETE FROM webhook_deliveries")
        await age(hooks, "webhook_targets", "used_at", UNUSED_TARGET_SECONDS + 7_200)
        await keeper.tick()
        assert await count(hooks, "webhook_targets") == (0 if refers is None else 1)


async def test_a_url_of_a_run_is_kept(hooks: WebhookDeliveries, keeper: WebhookPruner) -> None:
    await hooks.put("https://example.com/")
    await hooks.sql.execute("DELETE FROM webhook_deliveries")
    await hooks.sql.execute(
        "INSERT INTO runs (org_id, id, group_id, number, lane, endpoint, service, service_endpoint,"
        " webhook_target)"
        " SELECT org_id, gen_random_uuid(), gen_random_uuid(), 1, 'bulk', 's.e', 's', 'e', id"
        " FROM webhook_targets"
    )
    await age(hooks, "webhook_targets", "used_at", UNUSED_TARGET_SECONDS + 7_200)
    await keeper.tick()
    assert await count(hooks, "webhook_targets") == 1


async def test_a_url_that_is_named_just_as_it_is_forgotten_is_there(
    hooks: WebhookDeliveries, receiver: UpstreamServer, keeper: WebhookPruner
) -> None:
    await hooks.put(receiver.url())
    await hooks.sql.execute("DELETE FROM webhook_deliveries")
    await age(hooks, "webhook_targets", "used_at", UNUSED_TARGET_SECONDS + 7_200)
    ticket = await hooks.submit(receiver.url(), delay=3_600)
    await keeper.tick()
    await hooks.deployment.engine.cancel(ticket.id)
    async with hooks.deliverer() as deliverer:
        await hooks.deliver_due(deliverer)
    assert len(receiver.requests) == 1


async def test_a_url_in_use_is_not_written_with_every_job(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    await hooks.submit(receiver.url(), delay=3_600)
    version = "SELECT xmin::text FROM webhook_targets"
    before = await hooks.sql.fetchval(version)
    await hooks.submit(receiver.url(), delay=3_600)
    assert await hooks.sql.fetchval(version) == before
    await age(hooks, "webhook_targets", "used_at", 7_200)
    aged = await hooks.sql.fetchval(version)
    await hooks.submit(receiver.url(), delay=3_600)
    assert await hooks.sql.fetchval(version) != aged


async def test_the_log_is_pruned_in_chunks(hooks: WebhookDeliveries, dsn: str) -> None:
    line = Connection(dsn, name="pruning")
    for _ in range(3):
        await hooks.put("https://example.com/")
    await hooks.sql.execute(
        "UPDATE webhook_deliveries SET status = 'exhausted', due_at = NULL,"
        " ended_at = now() - interval '8 days'"
    )
    assert [(await webhooks.prune(line, 2)).deliveries for _ in range(3)] == [2, 1, 0]
    await line.close()
