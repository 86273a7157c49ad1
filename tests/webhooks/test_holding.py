"""Leases are short, for those who die; and renewed, for posts that take long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest

from coatcheck.core.queries import sql, webhooks
from coatcheck.core.queries.webhooks import FIRST, Claimed, Room
from coatcheck.db.connection import Connection
from tests.egress.upstream_server import UpstreamServer
from tests.waiting import eventually_async
from tests.webhooks.webhook_deliveries import WebhookDeliveries, held, until_called

LEASE_SECONDS = 8.0
ALL = Room(places=4, places_of_failing=4, per_org=4, per_target=4)


async def lease_ends(hooks: WebhookDeliveries, delivery: UUID) -> datetime:
    ends: datetime = await hooks.sql.fetchval(
        "SELECT due_at FROM webhook_deliveries WHERE id = $1 AND lease IS NOT NULL", delivery
    )
    return ends


async def until_renewed(hooks: WebhookDeliveries, delivery: UUID) -> None:
    before = await lease_ends(hooks, delivery)

    async def look() -> bool:
        return await lease_ends(hooks, delivery) > before

    await eventually_async(look, "the lease is renewed")


async def test_a_post_that_takes_long_is_held_also_while_its_server_stops(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    answer_now = asyncio.Event()
    receiver.answer = held(answer_now)
    delivery = await hooks.put(receiver.url())
    async with AsyncExitStack() as server:
        await server.enter_async_context(hooks.delivering(lease_seconds=LEASE_SECONDS))
        await until_called(receiver)
        await until_renewed(hooks, delivery)

        stopping = asyncio.create_task(server.aclose())
        await until_renewed(hooks, delivery)
        assert not stopping.done()
        answer_now.set()
        await stopping
    assert await hooks.status_of(delivery) == "delivered"
    assert len(receiver.requests) == 1


async def test_posts_are_held_also_after_a_renewal_that_failed_in_an_odd_way(
    hooks: WebhookDeliveries, receiver: UpstreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew, failed = webhooks.renew, asyncio.Event()

    async def renew_later(
        line: Connection, posting: Sequence[Claimed], seconds: float
    ) -> set[UUID]:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("nobody thought of this")
        return await renew(line, posting, seconds)

    monkeypatch.setattr(webhooks, "renew", renew_later)
    answer_now = asyncio.Event()
    receiver.answer = held(answer_now)
    delivery = await hooks.put(receiver.url())
    async with hooks.delivering(lease_seconds=LEASE_SECONDS):
        await until_called(receiver)
        await until_renewed(hooks, delivery)
        assert failed.is_set()
        answer_now.set()


async def test_who_was_taken_over_from_holds_nothing_any_longer(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    delivery = await hooks.put(receiver.url())
    line = Connection(hooks.deployment.settings.database_url, name="test deliverer")
    try:
        (slow,) = await claimed(line)
        await hooks.make_due()
        (next_one,) = await claimed(line)
        taken_until = await lease_ends(hooks, delivery)
        assert await webhooks.renew(line, [slow], LEASE_SECONDS * 10) == set()
        assert await lease_ends(hooks, delivery) == taken_until
        assert await webhooks.renew(line, [next_one], LEASE_SECONDS * 10) == {delivery}
        assert await lease_ends(hooks, delivery) > taken_until
    finally:
        await line.close()


async def test_a_lease_lasts_from_when_its_turn_came(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    delivery = await hooks.put(receiver.url())
    line = Connection(hooks.deployment.settings.database_url, name="test deliverer")
    try:
        async with hooks.sql.transaction():
            await sql.fetch(hooks.sql, "webhooks/lock_claims", lock=webhooks.CLAIM_LOCK)
            claiming = asyncio.create_task(claimed(line))

            async def waits() -> bool:
                return bool(
                    await hooks.sql.fetchval(
                        "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory'"
                        " AND NOT granted AND database ="
                        " (SELECT oid FROM pg_database WHERE datname = current_database()))"
                    )
                )

            await eventually_async(waits, "the claim waits for its turn")
            its_turn_came_after = await hooks.sql.fetchval("SELECT clock_timestamp()")
        assert len(await claiming) == 1
        lasts = await lease_ends(hooks, delivery) - its_turn_came_after
        assert lasts >= timedelta(seconds=LEASE_SECONDS)
    finally:
        await line.close()


async def claimed(line: Connection) -> list[Claimed]:
    found, _ = await webhooks.claim(
        line, ALL, uuid4(), lease_seconds=LEASE_SECONDS, after=FIRST, targets_max=10
    )
    return found
