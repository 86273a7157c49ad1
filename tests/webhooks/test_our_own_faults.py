"""What goes wrong on our side is no fault of the receiver's, and is not tried for ever either."""

from __future__ import annotations

from coatcheck.domain.errors import DatabaseUnavailable
from coatcheck.domain.webhooks import DeliveryEvent
from coatcheck.maintenance.webhooks import WebhookDeliverer
from tests.egress.upstream_server import UpstreamServer
from tests.webhooks.post_office import PostOffice


async def test_while_a_job_cannot_be_read_its_webhook_waits_and_no_try_is_spent(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    async def render(event: DeliveryEvent) -> bytes:
        raise DatabaseUnavailable("away")

    ticket = await office.ended(receiver.url())
    deliverer = WebhookDeliverer(office.deployment.settings, render)
    await office.deliver_due(deliverer)
    await deliverer.stop()
    item = await office.delivery_of(ticket)
    assert (item["status"], item["tries"]) == ("pending", 0)
    assert receiver.requests == []

    await office.make_due()
    async with office.deliverer() as able:
        await office.deliver_due(able)
    assert (await office.delivery_of(ticket))["status"] == "delivered"


async def test_what_cannot_be_rendered_has_tries_like_any_other(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    delivery = await office.put(receiver.url(), subject_kind="batch", event="batch.unheard_of")

    async def render(event: DeliveryEvent) -> bytes:
        raise KeyError("swordfish")

    deliverer = WebhookDeliverer(office.deployment.settings, render)
    for tries in range(1, 11):
        await office.deliver_due(deliverer)
        (item,) = await office.log()
        assert item["tries"] == tries
        await office.make_due()
    await deliverer.stop()
    assert await office.status_of(delivery) == "exhausted"
    assert item["last_error"] == "it could not be sent because of an internal error"
    assert receiver.requests == []
