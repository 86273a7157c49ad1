"""Webhooks go where they may: asked when a job is handed in, and again for every connection."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from coatcheck.domain.errors import UrlForbidden
from coatcheck.egress import Guard
from coatcheck.egress.urls import Address
from tests.contract.things_service import things
from tests.egress.names import Busy
from tests.egress.upstream_server import UpstreamServer
from tests.products.graphs.archives import PROGRAM, post, zipped
from tests.webhooks.webhook_deliveries import ORG, WebhookDeliveries, status

SUBMIT = f"/api/v1/orgs/{ORG}/services/things/async/thing"
FORBIDDEN = [
    "http://10.0.0.1/",
    "https://10.0.0.1/",
    "https://127.0.0.2/",
    "https://169.254.169.254/latest",
    "https://[::1]/",
    "https://user:password@example.com/",
    "https://example.com:22/",
    "ftp://example.com/",
    "example.com",
    "",
]


@pytest.mark.parametrize("url", FORBIDDEN)
async def test_a_url_that_may_not_be_called_is_refused_with_its_job(
    hooks: WebhookDeliveries, url: str
) -> None:
    await hooks.deployment.start_worker(things)
    answer = await hooks.deployment.http.post(SUBMIT, headers={"X-Webhook-Url": url})
    assert (answer.status_code, answer.json()["code"]) == (422, "url_forbidden")
    archive = await post(hooks.deployment.http, zipped(PROGRAM), "k", X_Webhook_Url=url)
    assert (archive.status_code, archive.json()["code"]) == (422, "url_forbidden")
    assert await hooks.sql.fetchval("SELECT count(*) FROM jobs") == 0
    assert await hooks.sql.fetchval("SELECT count(*) FROM webhook_targets") == 0


@pytest.mark.parametrize("url", ["ftp://example.com/", "https://a@example.com/", "https://x/#y"])
async def test_the_engine_refuses_what_is_no_plain_url(hooks: WebhookDeliveries, url: str) -> None:
    with pytest.raises(UrlForbidden, match="webhook_url"):
        await hooks.submit(url)


async def test_a_name_that_leads_inside_by_now_is_not_called(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    async def rebound(host: str, org: str, timeout: float | None) -> list[Address]:
        return [ip_address("127.0.0.1")]

    ticket = await hooks.ended(f"https://hooks.example.com:{receiver.port}/")
    async with hooks.deliverer(guard=Guard(resolver=rebound)) as deliverer:
        await hooks.deliver_due(deliverer)
    item = await hooks.delivery_of(ticket)
    assert item["last_error"] == "The URL leads to an address that is not public."
    assert (item["status"], item["tries"]) == ("pending", 1)
    assert receiver.connections == 0


async def test_a_name_that_is_not_looked_up_now_costs_no_try(hooks: WebhookDeliveries) -> None:
    ticket = await hooks.ended("https://hooks.example.com/")
    busy = Busy()
    async with hooks.deliverer(guard=Guard(resolver=busy)) as deliverer:
        await hooks.deliver_due(deliverer)
    item = await hooks.delivery_of(ticket)
    assert (item["status"], item["tries"]) == ("pending", 0)
    assert busy.orgs == [ORG]


async def test_a_redirect_to_the_inside_is_not_followed(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    inside = receiver.url("/inside")
    receiver.answer = status("307 Over there", Location=inside)
    ticket = await hooks.ended(receiver.url())
    async with hooks.deliverer() as deliverer:
        await hooks.deliver_due(deliverer)
    assert (await hooks.delivery_of(ticket))["last_status_code"] == 307
    assert [request.target for request in receiver.requests] == ["/"]
