"""The log: what was sent and what is to be, a page at a time, and each organisation's own."""

from __future__ import annotations

import asyncio

from coatcheck.domain.webhooks import message_id
from tests.deployment import bearer
from tests.egress.upstream_server import UpstreamServer
from tests.webhooks.webhook_deliveries import LOG, ORG, WebhookDeliveries, held, until_called


async def test_pages_go_from_the_newest_to_the_oldest(hooks: WebhookDeliveries) -> None:
    made = [message_id(await hooks.put("https://example.com/")) for _ in range(5)]
    seen, cursor = [], None
    while True:
        query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = (await hooks.deployment.http.get(LOG, params=query)).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == made[::-1]


async def test_the_log_is_narrowed_by_job_and_status(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    first = await hooks.ended(receiver.url())
    async with hooks.deliverer() as deliverer:
        await hooks.deliver_due(deliverer)
    second = await hooks.ended(receiver.url())
    assert [item["job_id"] for item in await hooks.log(status="delivered")] == [first.id]
    assert [item["job_id"] for item in await hooks.log(status="pending")] == [second.id]
    assert await hooks.log(status="exhausted") == []
    assert await hooks.log(job_id=first.id, status="pending") == []
    (item,) = await hooks.log(job_id=second.id)
    assert (item["subject"], item["event"]) == ("job", "job.cancelled")
    assert item["url"] == receiver.url()
    assert item["next_try_at"] is not None
    assert item == (await hooks.deployment.http.get(f"{LOG}/{item['id']}")).json()


async def test_a_task_is_found_by_its_own_spelling(hooks: WebhookDeliveries) -> None:
    task = "0123456789abcdef0123456789abcdef"
    await hooks.put(
        "https://example.com/", subject_kind="task", subject_id=task, event="task.failed"
    )
    (item,) = await hooks.log(job_id=task)
    assert (item["job_id"], item["subject"]) == (task, "task")


async def test_what_makes_no_sense_is_refused(hooks: WebhookDeliveries) -> None:
    for query in (
        {"job_id": "x"},
        {"job_id": "z" * 32},
        {"status": "sent"},
        {"cursor": "x"},
        {"limit": "0"},
        {"limit": "201"},
        {"job": "x"},
    ):
        answer = await hooks.deployment.http.get(LOG, params=query)
        assert answer.status_code == 400, query
        assert answer.json()["code"] == "invalid_parameter"


async def test_another_organisation_s_delivery_is_as_if_it_were_not(
    hooks: WebhookDeliveries,
) -> None:
    await hooks.deployment.create_org("other")
    stranger = bearer(await hooks.deployment.create_key("other"))
    mine = message_id(await hooks.put("https://example.com/"))
    theirs = "/api/v1/orgs/other/webhooks/deliveries"
    assert (await hooks.deployment.http.get(theirs, headers=stranger)).json()["items"] == []
    for path in (f"{theirs}/{mine}", f"{LOG}/{mine}"):
        for method, suffix in (("GET", ""), ("POST", "/replay")):
            answer = await hooks.deployment.http.request(method, path + suffix, headers=stranger)
            assert answer.status_code == 404
    assert (await hooks.deployment.http.get(f"{LOG}/not-an-id")).status_code == 404


async def test_a_replay_of_what_is_being_posted_changes_nothing(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    answer_now = asyncio.Event()
    receiver.answer = held(answer_now)
    ticket = await hooks.ended(receiver.url())
    async with hooks.deliverer() as deliverer:
        await deliverer.tick()
        await until_called(receiver)
        item = await hooks.delivery_of(ticket)
        await hooks.replay(item["id"])
        answer_now.set()
        await deliverer.idle()
    assert (await hooks.delivery_of(ticket))["status"] == "delivered"


async def test_the_log_of_nobody_is_empty(hooks: WebhookDeliveries) -> None:
    assert await hooks.log() == []
    assert (await hooks.deployment.http.get(LOG)).json() == {"items": [], "next": None}
    assert LOG.startswith(f"/api/v1/orgs/{ORG}/")
