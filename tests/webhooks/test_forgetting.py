"""What is kept of webhooks: a week of the log, and no URL that nothing refers to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coatcheck.core.queries import webhooks
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.webhooks import LOG_SECONDS, UNUSED_TARGET_SECONDS
from coatcheck.maintenance.retention import WebhookPruner
from tests.egress.upstream_server import UpstreamServer
from tests.webhooks.post_office import PostOffice


@pytest.fixture
async def keeper(dsn: str) -> AsyncIterator[WebhookPruner]:
    line = Connection(dsn, name="keeping", server_settings=PINNED_PLANS)
    yield WebhookPruner(line)
    await line.close()


async def age(office: PostOffice, table: str, column: str, seconds: float) -> None:
    await office.sql.execute(
        f"UPDATE {table} SET {column} = {column} - $1 * interval '1 second'", float(seconds)
    )


async def count(office: PostOffice, table: str) -> int:
    rows: int = await office.sql.fetchval(f"SELECT count(*) FROM {table}")
    return rows


async def test_what_has_ended_is_kept_for_a_week(
    office: PostOffice, receiver: UpstreamServer, keeper: WebhookPruner
) -> None:
    await office.ended(receiver.url())
    waiting = await office.put(receiver.url("/later"))
    await office.sql.execute(
        "UPDATE webhook_deliveries SET due_at = now() + interval '1 day' WHERE id = $1", waiting
    )
    async with office.deliverer() as deliverer:
        await office.deliver_due(deliverer)
    await age(office, "webhook_deliveries", "ended_at", LOG_SECONDS - 60)
    await keeper.tick()
    assert await count(office, "webhook_deliveries") == 2
    await age(office, "webhook_deliveries", "ended_at", 60)
    await keeper.tick()
    assert await count(office, "webhook_deliveries") == 1
    assert await office.status_of(waiting) == "pending"


async def test_who_is_told_is_forgotten_with_the_job(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    await office.ended(receiver.url())
    assert await count(office, "job_webhooks") == 1
    await office.forget_jobs()
    assert await count(office, "job_webhooks") == 0
    assert await count(office, "webhook_deliveries") == 1, "it is still to be told"


async def test_a_url_is_forgotten_once_nothing_refers_to_it(
    office: PostOffice, receiver: UpstreamServer, keeper: WebhookPruner
) -> None:
    await office.submit(receiver.url(), delay=3_600)
    for refers in ("job_webhooks", "webhook_deliveries", None):
        if refers == "webhook_deliveries":
            await office.put(receiver.url())
            await office.sql.execute("DELETE FROM job_webhooks")
        elif refers is None:
            await office.sql.execute("DELETE FROM webhook_deliveries")
        await age(office, "webhook_targets", "used_at", UNUSED_TARGET_SECONDS + 7_200)
        await keeper.tick()
        assert await count(office, "webhook_targets") == (0 if refers is None else 1)


async def test_a_url_of_a_run_is_kept(office: PostOffice, keeper: WebhookPruner) -> None:
    await office.put("https://example.com/")
    await office.sql.execute("DELETE FROM webhook_deliveries")
    await office.sql.execute(
        "INSERT INTO runs (org_id, id, group_id, number, lane, endpoint, service, service_endpoint,"
        " webhook_target)"
        " SELECT org_id, gen_random_uuid(), gen_random_uuid(), 1, 'bulk', 's.e', 's', 'e', id"
        " FROM webhook_targets"
    )
    await age(office, "webhook_targets", "used_at", UNUSED_TARGET_SECONDS + 7_200)
    await keeper.tick()
    assert await count(office, "webhook_targets") == 1


async def test_a_url_that_is_named_just_as_it_is_forgotten_is_there(
    office: PostOffice, receiver: UpstreamServer, keeper: WebhookPruner
) -> None:
    await office.put(receiver.url())
    await office.sql.execute("DELETE FROM webhook_deliveries")
    await age(office, "webhook_targets", "used_at", UNUSED_TARGET_SECONDS + 7_200)
    ticket = await office.submit(receiver.url(), delay=3_600)
    await keeper.tick()
    await office.deployment.engine.cancel(ticket.id)
    async with office.deliverer() as deliverer:
        await office.deliver_due(deliverer)
    assert len(receiver.requests) == 1


async def test_a_url_in_use_is_not_written_with_every_job(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    await office.submit(receiver.url(), delay=3_600)
    version = "SELECT xmin::text FROM webhook_targets"
    before = await office.sql.fetchval(version)
    await office.submit(receiver.url(), delay=3_600)
    assert await office.sql.fetchval(version) == before
    await age(office, "webhook_targets", "used_at", 7_200)
    aged = await office.sql.fetchval(version)
    await office.submit(receiver.url(), delay=3_600)
    assert await office.sql.fetchval(version) != aged


async def test_the_log_is_pruned_in_chunks(office: PostOffice, dsn: str) -> None:
    line = Connection(dsn, name="pruning")
    for _ in range(3):
        await office.put("https://example.com/")
    await office.sql.execute(
        "UPDATE webhook_deliveries SET status = 'exhausted', due_at = NULL,"
        " ended_at = now() - interval '8 days'"
    )
    assert [(await webhooks.prune(line, 2)).deliveries for _ in range(3)] == [2, 1, 0]
    await line.close()
