"""Webhooks by both clients, against a whole Coatcheck."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from coatcheck.client import (
    ConnectionFailed,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    ServerError,
)
from coatcheck.domain.tenants import USER_SCOPES
from coatcheck.maintenance.webhooks import WebhookDeliverer
from tests.all_products import payloads
from tests.client.conftest import Connect
from tests.client.flavours import Flavour
from tests.deployment import Deployment
from tests.egress.upstream_server import UpstreamServer, upstream_server

STRANGER_ID = "01JAV8M2Q0XW3N5T7R9Y1B3D5F"


@pytest.fixture
async def receiver() -> AsyncIterator[UpstreamServer]:
    async with upstream_server() as server:
        yield server


@pytest.fixture
def client(deployment: Deployment, connect: Connect) -> Flavour:
    return connect(str(deployment.http.base_url), deployment.key)


async def deliver(deployment: Deployment) -> None:
    deliverer = WebhookDeliverer(
        deployment.settings, payloads(deployment.context).body, deployment.engine.database
    )
    await deliverer.tick()
    await deliverer.idle()
    await deliverer.stop()


async def a_job_ends(deployment: Deployment) -> str:
    ticket = await deployment.engine.submit("things.post__thing", {}, delay=3_600)
    await deployment.engine.cancel(ticket.id)
    return ticket.id


async def test_an_endpoint_from_its_making_to_its_end(
    deployment: Deployment, client: Flavour, receiver: UpstreamServer
) -> None:
    webhooks = client.webhooks
    made = await webhooks.create(
        receiver.url(), events=["job.cancelled", "job.failed"], description="tests"
    )
    assert made.secret is not None
    assert made.secret not in repr(made)
    assert [each.id for each in await webhooks.list()] == [made.id]
    assert (await webhooks.get(made)).secret is None

    job = await a_job_ends(deployment)
    await deliver(deployment)
    (request,) = receiver.requests
    event = client.client.webhooks.verify(request.body, dict(request.headers), made.secret)
    assert (event.type, event.data["id"]) == ("job.cancelled", job)
    (delivery,) = await webhooks.all("deliveries", made)
    assert (delivery.id, delivery.status, delivery.job_id) == (event.id, "delivered", job)
    assert await webhooks.all("deliveries", job_id=job, status="pending") == []

    await webhooks.replay(delivery)
    assert (await webhooks.delivery(delivery.id)).status == "pending"
    assert (await webhooks.pause(made)).status == "paused"
    assert (await webhooks.delivery(delivery)).paused is True
    assert (await webhooks.resume(made.id)).status == "active"
    changed = await webhooks.update(made, events=["task.failed"])
    assert (changed.events, changed.url) == (("task.failed",), receiver.url())
    assert (await webhooks.test(made)).event == "webhook.test"
    await deliver(deployment)
    assert len(receiver.requests) == 3

    await webhooks.delete(made)
    with pytest.raises(NotFoundError):
        await webhooks.delete(made)


async def test_secrets_are_rotated_and_not_shown_by_accident(
    deployment: Deployment, client: Flavour
) -> None:
    webhooks = client.webhooks
    made = await webhooks.create("http://127.0.0.1:9/")
    rotated = await webhooks.rotate(made)
    assert (rotated.previous, rotated.generation) == (made.secret, 2)
    assert rotated.secret not in repr(rotated)
    assert await webhooks.secret(made) == rotated
    org = await webhooks.secret()
    assert org.previous is None
    assert (await webhooks.rotate()).previous == org.secret


async def test_a_span_of_time_is_replayed_however_many_there_are(
    deployment: Deployment, client: Flavour, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhooks = client.webhooks
    made = await webhooks.create("http://127.0.0.1:9/", events=["job.cancelled"])
    for _ in range(3):
        await a_job_ends(deployment)
    await deliver(deployment)
    line = deployment.context.tenants
    await line.fetch(
        "UPDATE webhook_deliveries SET status = 'exhausted', due_at = NULL, ended_at = now()"
    )
    monkeypatch.setattr(
        "coatcheck.core.webhooks.Webhooks.replay_range.__kwdefaults__",
        {"after": None, "limit": 2},
    )
    now = datetime.now(UTC)
    assert await webhooks.replay_since(now - timedelta(hours=2), now - timedelta(hours=1)) == 0
    assert await webhooks.replay_since(now - timedelta(hours=1), endpoint=made) == 3
    assert await webhooks.replay_since(now - timedelta(hours=1), statuses=["exhausted"]) == 0
    with pytest.raises(ValueError, match="time zone"):
        await webhooks.replay_since(datetime(2026, 1, 1))  # noqa: DTZ001


async def test_messages_are_taken_and_reported(deployment: Deployment, client: Flavour) -> None:
    webhooks = client.webhooks
    made = await webhooks.create(pulled=True, events=["job.cancelled"])
    assert made.pulled
    assert made.url is None
    assert await webhooks.take(made) == ()
    job = await a_job_ends(deployment)
    (message,) = await webhooks.take(made, limit=5, wait=30)
    event = client.client.webhooks.verify(message.body.encode(), message.headers, made.secret)
    assert event.data["id"] == message.job_id == job
    assert await webhooks.report(made, message, status_code=200) is True
    assert await webhooks.report(made, message, error="too late") is False
    assert (await webhooks.delivery(message.id)).status == "delivered"


async def test_what_is_refused_is_raised(
    deployment: Deployment, client: Flavour, connect: Connect
) -> None:
    webhooks = client.webhooks
    with pytest.raises(InvalidRequestError) as refused:
        await webhooks.create("http://127.0.0.1:9/", events=["job.gone"])
    assert refused.value.details[0].field == "events[0]"
    with pytest.raises(InvalidRequestError) as refused:
        await webhooks.create("https://10.0.0.1/")
    assert refused.value.code == "url_forbidden"
    for name in ("get", "pause", "resume", "test", "secret", "rotate", "take", "delete"):
        with pytest.raises(NotFoundError):
            await getattr(webhooks, name)(STRANGER_ID)
    member = connect(str(deployment.http.base_url), await deployment.create_key(scopes=USER_SCOPES))
    with pytest.raises(PermissionDeniedError):
        await member.webhooks.list()


async def test_what_might_be_done_twice_is_sent_once(connect: Connect, scripted: Any) -> None:
    made = {"id": STRANGER_ID, "url": "https://example.com/", "events": ["*"], "status": "active"}
    server = await scripted(
        {"drop": True},
        {"status": 503, "problem": {"code": "outcome_unknown"}},
        {"status": 503, "problem": {"code": "database_unavailable"}},
        {"status": 201, "json": made},
    )
    webhooks = connect(server.url).webhooks
    with pytest.raises(ConnectionFailed):
        await webhooks.create("https://example.com/")
    with pytest.raises(ServerError):
        await webhooks.create("https://example.com/")
    assert len(server.asked) == 2
    assert (await webhooks.create("https://example.com/")).id == STRANGER_ID
