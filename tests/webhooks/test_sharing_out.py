"""A slow or dead receiver delays nobody else; and no delivery is made by two servers at once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from coatcheck.domain.webhooks import target_id
from coatcheck.maintenance.webhooks import PLACES
from tests.egress.upstream_server import UpstreamServer, upstream_server
from tests.webhooks.webhook_deliveries import (
    WebhookDeliveries,
    held,
    ids_of,
    in_turn,
    status,
    until_called,
)

PER_TARGET = 4
PER_ORG = 64


async def test_a_receiver_is_called_four_times_at_a_time_by_all_servers_together(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    answer_now = asyncio.Event()
    receiver.answer = held(answer_now)
    for _ in range(PER_TARGET + 3):
        await hooks.put(receiver.url())
    async with hooks.deliverer() as one, hooks.deliverer() as two:
        await asyncio.gather(one.tick(), two.tick())
        await until_called(receiver, PER_TARGET)
        await asyncio.gather(one.tick(), two.tick())
        assert len(receiver.requests) == PER_TARGET
        answer_now.set()
        await asyncio.gather(one.idle(), two.idle())
        await asyncio.gather(hooks.deliver_due(one), hooks.deliver_due(two))
    assert len(ids_of(receiver)) == len(set(ids_of(receiver))) == PER_TARGET + 3


async def test_one_that_fails_is_tried_with_one_at_a_time_until_it_works(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    receiver.answer = in_turn(status("500 Oops"), status("200 OK"))
    await hooks.put(receiver.url())
    async with hooks.deliverer() as deliverer:
        await hooks.deliver_due(deliverer)
        for _ in range(5):
            await hooks.put(receiver.url())
        await hooks.deliver_due(deliverer)
        assert len(receiver.requests) == 2
        await hooks.deliver_due(deliverer)
    assert len(receiver.requests) == 2 + PER_TARGET


async def test_a_dead_receiver_with_a_long_queue_delays_no_other(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    never = asyncio.Event()
    async with upstream_server(held(never)) as dead:
        for _ in range(50):
            await hooks.put(dead.url())
        for at in range(20):
            await hooks.put(receiver.url(f"/{at}"))
        async with hooks.deliverer(post_seconds_max=5) as deliverer:
            await deliverer.tick()
            await until_called(receiver, 20)
            assert len(dead.requests) <= PER_TARGET
            never.set()


async def test_an_organisation_of_dead_receivers_leaves_room_for_others(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    never = asyncio.Event()
    async with upstream_server(held(never)) as dead:
        for at in range(PLACES + 10):
            await hooks.put(dead.url(f"/{at}"), org="aaa")
        async with hooks.deliverer() as deliverer:
            await deliverer.tick()
            await until_called(dead, PER_ORG)
            await hooks.put(receiver.url(), org="zzz")
            await deliverer.tick()
            await until_called(receiver)
            assert len(dead.requests) == PER_ORG
            never.set()


async def test_receivers_that_fail_get_half_of_the_places(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    never = asyncio.Event()
    async with upstream_server(held(never)) as dead, AsyncExitStack() as closing:
        for at in range(PLACES):
            await hooks.put(dead.url(f"/{at}"), org=f"org{at}")
        await hooks.sql.execute("UPDATE webhook_targets SET failures = 1")
        deliverer = await closing.enter_async_context(hooks.deliverer())
        await deliverer.tick()
        await until_called(dead, PLACES // 2)
        await hooks.put(receiver.url())
        await deliverer.tick()
        await until_called(receiver)
        assert len(dead.requests) == PLACES // 2
        never.set()


async def test_a_server_that_died_is_taken_over_from_and_its_late_mark_changes_nothing(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    answer_now = asyncio.Event()
    receiver.answer = held(answer_now)
    ticket = await hooks.ended(receiver.url())
    async with hooks.deliverer() as slow, hooks.deliverer() as other:
        await slow.tick()
        await until_called(receiver)
        await hooks.deliver_due(other)
        assert len(receiver.requests) == 1, "the lease is held"
        await hooks.make_due()  # as if the first had been silent for its lease
        receiver.answer = status("500 Oops")
        await hooks.deliver_due(other)
        assert (await hooks.delivery_of(ticket))["tries"] == 1
        answer_now.set()
        await slow.idle()
        item = await hooks.delivery_of(ticket)
    assert (item["status"], item["tries"], item["last_status_code"]) == ("pending", 1, 500)
    assert ids_of(receiver) == [item["id"]] * 2, "a duplicate has the same id"


async def test_more_targets_than_one_look_passes_through_are_all_reached(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    targets = 1_030
    urls = [receiver.url(f"/{at}") for at in range(targets)]
    await hooks.sql.executemany(
        "INSERT INTO webhook_targets (org_id, id, url, not_before) VALUES ($1, $2, $3, 'infinity')",
        [("default", target_id("default", url), url) for url in urls],
    )
    await hooks.sql.execute(
        "INSERT INTO webhook_deliveries (org_id, target_id, subject_kind, subject_id, event, facts)"
        " SELECT org_id, id, 'job', gen_random_uuid(), 'job.failed',"
        '  \'{"state": "failed", "attempt": 1, "endpoint": "x"}\' FROM webhook_targets'
    )
    last = await hooks.sql.fetchval("SELECT id FROM webhook_targets ORDER BY id DESC LIMIT 1")
    await hooks.sql.execute("UPDATE webhook_targets SET not_before = NULL WHERE id = $1", last)
    async with hooks.deliverer() as deliverer:
        assert await deliverer.tick() == 0.0
        await deliverer.tick()
        await deliverer.idle()
    assert len(receiver.requests) == 1
