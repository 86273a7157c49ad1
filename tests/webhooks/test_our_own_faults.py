"""What goes wrong on our side is no fault of the receiver's, and is not tried for ever either."""

from __future__ import annotations

from coatcheck.domain.errors import DatabaseUnavailable
from coatcheck.domain.webhooks import DeliveryEvent
from coatcheck.maintenance.webhooks import WebhookDeliverer
from tests.egress.upstream_server import UpstreamServer
from tests.webhooks.webhook_deliveries import WebhookDeliveries


async def test_while_a_job_cannot_be_read_its_webhook_waits_and_no_try_is_spent(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    async def render(event: DeliveryEvent) -> bytes:
        raise DatabaseUnavailable("away")

    ticket = await hooks.ended(receiver.url())
    deliverer = WebhookDeliverer(
        hooks.deployment.settings, render, hooks.deployment.engine.database
    )
    await hooks.deliver_due(deliverer)
    await deliverer.stop()
    item = await hooks.delivery_of(ticket)
    assert (item["status"], item["tries"]) == ("pending", 0)
    assert receiver.requests == []

    await hooks.make_due()
    async with hooks.deliverer() as able:
        await hooks.deliver_due(able)
    assert (await hooks.delivery_of(ticket))["status"] == "delivered"


async def test_what_cannot_be_rendered_has_tries_like_any_other(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    delivery = await hooks.put(receiver.url(), subject_kind="batch", event="batch.unheard_of")

    async def render(event: DeliveryEvent) -> bytes:
        raise KeyError("swordfish")

    deliverer = WebhookDeliverer(
        hooks.deployment.settings, render, hooks.deployment.engine.database
    )
    for tries in range(1, 11):
        await hooks.deliver_due(deliverer)
        (item,) = await hooks.log()
        assert item["tries"] == tries
        await hooks.make_due()
    await deliverer.stop()
    assert await hooks.status_of(delivery) == "exhausted"
    assert item["last_error"] == "it could not be sent because of an internal error"
    assert receiver.requests == []
