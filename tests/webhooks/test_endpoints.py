"""Endpoints that an organisation registers: told of all its jobs, of nobody else's, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from standardwebhooks import WebhookVerificationError

from coatcheck import Ticket
from coatcheck.core.queries import sql
from coatcheck.core.webhooks import Webhooks
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.errors import NotFound, TooManyWebhookEndpoints, WebhookEndpointDeleted
from coatcheck.domain.webhooks import (
    ENDPOINTS_MAX,
    PREVIOUS_SECRET_SECONDS,
    PULL_SECONDS_MAX,
    UNUSED_TARGET_SECONDS,
    DeliveryStatus,
    DeliveryView,
    EndpointView,
)
from coatcheck.maintenance.retention import WebhookPruner
from tests.contract.things_service import things
from tests.db.blocking import until_blocked
from tests.egress.upstream_server import UpstreamServer, upstream_server
from tests.webhooks.webhook_deliveries import (
    ORG,
    WebhookDeliveries,
    first_secret,
    held,
    in_turn,
    status,
    until_called,
    verified,
)


@pytest.fixture
def webhooks(hooks: WebhookDeliveries) -> Webhooks:
    return hooks.deployment.engine.webhooks


@pytest.fixture
async def keeper(dsn: str) -> AsyncIterator[WebhookPruner]:
    line = Connection(dsn, name="keeping", server_settings=PINNED_PLANS)
    yield WebhookPruner(line)
    await line.close()


async def cancelled(hooks: WebhookDeliveries, org: str = ORG) -> Ticket:
    """A job that names nobody, and has ended."""
    ticket = await hooks.deployment.engine.submit("things.post__thing", {}, delay=3_600, org=org)
    await hooks.deployment.engine.cancel(ticket.id, org=org)
    return ticket


async def told(webhooks: Webhooks, endpoint: EndpointView) -> list[DeliveryView]:
    """What there is in the log for an endpoint, oldest first."""
    shown = await webhooks.deliveries(endpoint.org, endpoint=endpoint.id, limit=100)
    return shown[::-1]


async def deliver(hooks: WebhookDeliveries) -> None:
    async with hooks.deliverer() as deliverer:
        await hooks.deliver_due(deliverer)


async def test_an_endpoint_is_told_of_all_jobs_of_its_organisation_and_of_no_other_s(
    hooks: WebhookDeliveries, webhooks: Webhooks
) -> None:
    async with upstream_server() as mine, upstream_server() as theirs:
        await webhooks.create_endpoint(ORG, mine.url(), ["*"])
        await webhooks.create_endpoint("others", theirs.url(), ["*"])
        jobs = [await cancelled(hooks) for _ in range(3)]
        other = await cancelled(hooks, "others")
        await deliver(hooks)
        secret = (await webhooks.secret(ORG, (await webhooks.list_endpoints(ORG))[0].id)).secret
        bodies = [verified(request, secret) for request in mine.requests]
        assert {body["data"]["id"] for body in bodies} == {job.id for job in jobs}
        assert {body["type"] for body in bodies} == {"job.cancelled"}
        assert {(b["previous_state"], b["state"]) for b in bodies} == {("staged", "cancelled")}
        (request,) = theirs.requests
        assert other.id.encode() in request.body


async def test_an_endpoint_of_another_organisation_is_as_if_it_were_not(
    hooks: WebhookDeliveries, webhooks: Webhooks, receiver: UpstreamServer
) -> None:
    mine = await webhooks.create_endpoint(ORG, receiver.url(), ["*"])
    before = await webhooks.get_endpoint(ORG, mine.id)
    for forbidden in (
        webhooks.get_endpoint("others", mine.id),
        webhooks.change_endpoint("others", mine.id, description="x"),
        webhooks.pause("others", mine.id),
        webhooks.resume("others", mine.id),
        webhooks.delete_endpoint("others", mine.id),
        webhooks.secret("others", mine.id),
        webhooks.rotate("others", mine.id, 1),
        webhooks.send_test("others", mine.id),
        webhooks.take("others", mine.id, 1, 60),
        webhooks.deliveries("others", endpoint=mine.id, limit=1),
        webhooks.get_endpoint(ORG, "not an id"),
    ):
        with pytest.raises(NotFound):
            await forbidden
    assert await webhooks.list_endpoints("others") == []
    assert await webhooks.get_endpoint(ORG, mine.id) == before


async def test_one_that_answered_410_is_told_nothing_until_it_is_resumed(
    hooks: WebhookDeliveries, webhooks: Webhooks, receiver: UpstreamServer, keeper: WebhookPruner
) -> None:
    endpoint = await webhooks.create_endpoint(ORG, receiver.url(), ["*"])
    receiver.answer = in_turn(status("410 Gone"), status("200 OK"))
    await cancelled(hooks)
    await deliver(hooks)
    assert (await webhooks.get_endpoint(ORG, endpoint.id)).disabled_at is not None
    await cancelled(hooks)
    await deliver(hooks)
    await keeper.tick()
    assert len(receiver.requests) == 1
    gone = await told(webhooks, endpoint)
    assert [each.status for each in gone] == [DeliveryStatus.DISABLED] * 2
    assert (await webhooks.resume(ORG, endpoint.id)).disabled_at is None
    await cancelled(hooks)
    await deliver(hooks)
    assert len(receiver.requests) == 2
    again = await webhooks.replay(ORG, gone[1].id)
    assert again.status is DeliveryStatus.PENDING
    await deliver(hooks)
    assert len(receiver.requests) == 3


async def test_a_deleted_endpoint_s_messages_end_and_are_not_sent_again(
    hooks: WebhookDeliveries, webhooks: Webhooks, receiver: UpstreamServer, keeper: WebhookPruner
) -> None:
    endpoint = await webhooks.create_endpoint(ORG, receiver.url(), ["*"])
    job = await cancelled(hooks)
    await webhooks.delete_endpoint(ORG, endpoint.id)
    await cancelled(hooks)
    await deliver(hooks)
    await keeper.tick()
    assert receiver.requests == []
    assert await webhooks.list_endpoints(ORG) == []
    (left,) = await webhooks.deliveries(ORG, limit=10)
    assert (left.status, left.last_error) == (DeliveryStatus.DISABLED, "the endpoint was deleted")
    assert (left.url, left.endpoint) == (receiver.url(), endpoint.uuid)
    assert (await hooks.delivery_of(job))["status"] == "disabled"
    with pytest.raises(WebhookEndpointDeleted):
        await webhooks.replay(ORG, left.id)
    count = await webhooks.replay_range(
        ORG, None, endpoint.created_at, None, [DeliveryStatus.DISABLED]
    )
    assert count.count == 0
    with pytest.raises(NotFound):
        await webhooks.resume(ORG, endpoint.id)


async def test_a_replay_that_meets_a_deletion_leaves_the_endpoint_deleted(
    hooks: WebhookDeliveries, webhooks: Webhooks, receiver: UpstreamServer, keeper: WebhookPruner
) -> None:
    endpoint = await webhooks.create_endpoint(ORG, receiver.url(), ["*"])
    await cancelled(hooks)
    (delivery,) = await told(webhooks, endpoint)
    async with hooks.sql.transaction():
        await sql.fetch(hooks.sql, "webhooks/delete_endpoint", org=ORG, endpoint=endpoint.uuid)
        asked = asyncio.create_task(webhooks.replay(ORG, delivery.id))
        await until_blocked(hooks.sql, "coatcheck pool")
    await asked
    await deliver(hooks)
    await keeper.tick()
    assert receiver.requests == []
    assert (await webhooks.delivery(ORG, delivery.id)).status is DeliveryStatus.DISABLED


async def test_an_endpoint_stays_however_long_nothing_happens(
    hooks: WebhookDeliveries, webhooks: Webhooks, receiver: UpstreamServer, keeper: WebhookPruner
) -> None:
    endpoint = await webhooks.create_endpoint(ORG, receiver.url(), ["*"])
    await hooks.sql.execute(
        "UPDATE webhook_targets SET used_at = now() - $1 * interval '1 second'",
        float(UNUSED_TARGET_SECONDS + 60),
    )
    await keeper.tick()
    assert await webhooks.list_endpoints(ORG) == [endpoint]


async def test_an_endpoint_s_rotated_secrets_both_verify_for_a_day_and_no_other_does(
    hooks: WebhookDeliveries, webhooks: Webhooks, receiver: UpstreamServer
) -> None:
    endpoint = await webhooks.create_endpoint(ORG, receiver.url(), ["*"])
    twin = await webhooks.create_endpoint(ORG, receiver.url("/twin"), ["job.completed"])
    old = await webhooks.secret(ORG, endpoint.id)
    new = await webhooks.rotate(ORG, endpoint.id, old.generation)
    assert (new.previous, new.generation) == (old.secret, old.generation + 1)
    assert await webhooks.rotate(ORG, endpoint.id, old.generation) == new, "asked again"
    await cancelled(hooks)
    await deliver(hooks)
    (request,) = receiver.requests
    assert verified(request, new.secret) == verified(request, old.secret)
    for other in (first_secret(), (await webhooks.secret(ORG, twin.id)).secret):
        with pytest.raises(WebhookVerificationError):
            verified(request, other)
    await hooks.sql.execute(
        "UPDATE webhook_targets SET rotated_at = now() - $1 * interval '1 second'",
        float(PREVIOUS_SECRET_SECONDS),
    )
    assert (await webhooks.secret(ORG, endpoint.id)).previous is None
    await cancelled(hooks)
    await deliver(hooks)
    assert verified(receiver.requests[1], new.secret)
    with pytest.raises(WebhookVerificationError):
        verified(receiver.requests[1], old.secret)


async def test_a_job_s_own_webhook_and_an_endpoint_are_both_told_each_with_its_secret(
    hooks: WebhookDeliveries, webhooks: Webhooks, receiver: UpstreamServer
) -> None:
    endpoint = await webhooks.create_endpoint(ORG, receiver.url("/endpoint"), ["*"])
    ticket = await hooks.ended(receiver.url("/job"))
    await deliver(hooks)
    by_path = {request.target: request for request in receiver.requests}
    secret = (await webhooks.secret(ORG, endpoint.id)).secret
    assert verified(by_path["/endpoint"], secret)["data"]["id"] == ticket.id
    assert verified(by_path["/job"], first_secret())["data"]["id"] == ticket.id
    ids = {request.header("webhook-id") for request in receiver.requests}
    assert len(ids) == 2


async def test_what_happens_to_a_job_is_first_tried_in_order(
    hooks: WebhookDeliveries, webhooks: Webhooks, receiver: UpstreamServer
) -> None:
    await webhooks.create_endpoint(ORG, receiver.url(), ["job.*"])
    answer_now = asyncio.Event()
    receiver.answer = in_turn(held(answer_now), status("200 OK"))
    await hooks.deployment.start_worker(things)
    ticket = await hooks.deployment.engine.submit("things.post__thing", {})
    await hooks.deployment.engine.wait(ticket.id)
    async with hooks.deliverer() as one, hooks.deliverer() as other:
        await one.tick()
        await until_called(receiver)
        await hooks.deliver_due(other)
        assert len(receiver.requests) == 1, "the second waits for the first try of the first"
        answer_now.set()
        await one.idle()
        while (due := len(await hooks.log(status="pending"))) > 0:
            await hooks.deliver_due(other)
            assert len(await hooks.log(status="pending")) == due - 1
    bodies = [verified(request, await secret_of(webhooks)) for request in receiver.requests]
    chain = [(body["previous_state"], body["state"]) for body in bodies]
    assert (chain[0][0], chain[-1][1]) == ("queued", "completed")
    assert [after for _, after in chain[:-1]] == [before for before, _ in chain[1:]]


async def test_a_first_try_that_failed_holds_up_nothing_that_follows(
    hooks: WebhookDeliveries, webhooks: Webhooks, receiver: UpstreamServer
) -> None:
    await webhooks.create_endpoint(ORG, receiver.url(), ["job.*"])
    receiver.answer = in_turn(status("500 Oops"), status("200 OK"))
    await hooks.deployment.start_worker(things)
    ticket = await hooks.deployment.engine.submit("things.post__thing", {})
    await hooks.deployment.engine.wait(ticket.id)
    async with hooks.deliverer() as deliverer:
        await hooks.deliver_due(deliverer)
        await hooks.deliver_due(deliverer)
    assert len(receiver.requests) == 2
    assert receiver.requests[0].header("webhook-id") != receiver.requests[1].header("webhook-id")


async def test_a_dead_endpoint_delays_no_other_and_no_job(
    hooks: WebhookDeliveries, webhooks: Webhooks, receiver: UpstreamServer
) -> None:
    never = asyncio.Event()
    async with upstream_server(held(never)) as dead:
        await webhooks.create_endpoint(ORG, dead.url(), ["job.*"])
        await webhooks.create_endpoint(ORG, receiver.url(), ["*"])
        await hooks.deployment.start_worker(things)
        async with hooks.delivering(post_seconds_max=5):
            tickets = [
                await hooks.deployment.engine.submit("things.post__thing", {}) for _ in range(20)
            ]
            for ticket in tickets:
                assert (await hooks.deployment.engine.wait(ticket.id)).terminal
            await until_called(receiver, 20)
            never.set()


async def test_a_new_url_is_called_from_then_on(
    hooks: WebhookDeliveries, webhooks: Webhooks, receiver: UpstreamServer
) -> None:
    endpoint = await webhooks.create_endpoint(ORG, receiver.url("/old"), ["*"], "mine")
    receiver.answer = in_turn(status("500 Oops"), status("200 OK"))
    await cancelled(hooks)
    await deliver(hooks)
    changed = await webhooks.change_endpoint(ORG, endpoint.id, url=receiver.url("/new"))
    assert (changed.url, changed.failures) == (receiver.url("/new"), 0)
    assert (changed.events, changed.description) == (endpoint.events, "mine")
    await hooks.make_due()
    await deliver(hooks)
    assert [request.target for request in receiver.requests] == ["/old", "/new"]


async def test_an_organisation_has_only_so_many_however_many_ask_at_once(
    hooks: WebhookDeliveries, webhooks: Webhooks
) -> None:
    async def create() -> EndpointView | None:
        try:
            return await webhooks.create_endpoint(ORG, "https://example.com/", ["*"])
        except TooManyWebhookEndpoints:
            return None

    made = await asyncio.gather(*(create() for _ in range(ENDPOINTS_MAX + 5)))
    assert sum(each is not None for each in made) == ENDPOINTS_MAX
    assert len(await webhooks.list_endpoints(ORG)) == ENDPOINTS_MAX
    assert await webhooks.create_endpoint("others", "https://example.com/", ["*"])


async def test_one_that_nobody_fetches_from_any_more_is_removed(
    hooks: WebhookDeliveries, webhooks: Webhooks, keeper: WebhookPruner
) -> None:
    fetched = await webhooks.create_endpoint(ORG, None, ["*"], pulled=True)
    forgotten = await webhooks.create_endpoint(ORG, None, ["*"], pulled=True)
    posted = await webhooks.create_endpoint(ORG, "https://example.com/", ["*"])
    await hooks.sql.execute(
        "UPDATE webhook_targets SET created_at = now() - $1 * interval '1 second'",
        float(PULL_SECONDS_MAX + 1),
    )
    assert await webhooks.take(ORG, fetched.id, 1, 60) == []
    await keeper.tick()
    left = {each.id for each in await webhooks.list_endpoints(ORG)}
    assert left == {fetched.id, posted.id}
    with pytest.raises(NotFound):
        await webhooks.take(ORG, forgotten.id, 1, 60)


async def secret_of(webhooks: Webhooks) -> str:
    """Of the organisation's first endpoint."""
    return (await webhooks.secret(ORG, (await webhooks.list_endpoints(ORG))[0].id)).secret
