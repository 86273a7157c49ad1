"""The log: what was sent and what is to be, a page at a time, and each organisation's own."""

from __future__ import annotations

import asyncio

from coatcheck.domain.webhooks import message_id
from tests.deployment import bearer
from tests.egress.upstream_server import UpstreamServer
from tests.webhooks.post_office import LOG, ORG, PostOffice, held, until_called


async def test_pages_go_from_the_newest_to_the_oldest(office: PostOffice) -> None:
    made = [message_id(await office.put("https://example.com/")) for _ in range(5)]
    seen, cursor = [], None
    while True:
        query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = (await office.deployment.http.get(LOG, params=query)).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == made[::-1]


async def test_the_log_is_narrowed_by_job_and_status(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    first = await office.ended(receiver.url())
    async with office.deliverer() as deliverer:
        await office.deliver_due(deliverer)
    second = await office.ended(receiver.url())
    assert [item["job_id"] for item in await office.log(status="delivered")] == [first.id]
    assert [item["job_id"] for item in await office.log(status="pending")] == [second.id]
    assert await office.log(status="exhausted") == []
    assert await office.log(job_id=first.id, status="pending") == []
    (item,) = await office.log(job_id=second.id)
    assert (item["subject"], item["event"]) == ("job", "job.cancelled")
    assert item["url"] == receiver.url()
    assert item["next_try_at"] is not None
    assert item == (await office.deployment.http.get(f"{LOG}/{item['id']}")).json()


async def test_a_task_is_found_by_its_own_spelling(office: PostOffice) -> None:
    task = "0123456789abcdef0123456789abcdef"
    await office.put(
        "https://example.com/", subject_kind="task", subject_id=task, event="task.failed"
    )
    (item,) = await office.log(job_id=task)
    assert (item["job_id"], item["subject"]) == (task, "task")


async def test_what_makes_no_sense_is_refused(office: PostOffice) -> None:
    for query in (
        {"job_id": "x"},
        {"job_id": "z" * 32},
        {"status": "sent"},
        {"cursor": "x"},
        {"limit": "0"},
        {"limit": "201"},
        {"job": "x"},
    ):
        answer = await office.deployment.http.get(LOG, params=query)
        assert answer.status_code == 400, query
        assert answer.json()["code"] == "invalid_parameter"


async def test_another_organisation_s_delivery_is_as_if_it_were_not(office: PostOffice) -> None:
    await office.deployment.create_org("other")
    stranger = bearer(await office.deployment.create_key("other"))
    mine = message_id(await office.put("https://example.com/"))
    theirs = "/api/v1/orgs/other/webhooks/deliveries"
    assert (await office.deployment.http.get(theirs, headers=stranger)).json()["items"] == []
    for path in (f"{theirs}/{mine}", f"{LOG}/{mine}"):
        for method, suffix in (("GET", ""), ("POST", "/replay")):
            answer = await office.deployment.http.request(method, path + suffix, headers=stranger)
            assert answer.status_code == 404
    assert (await office.deployment.http.get(f"{LOG}/not-an-id")).status_code == 404


async def test_a_replay_of_what_is_being_posted_changes_nothing(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    answer_now = asyncio.Event()
    receiver.answer = held(answer_now)
    ticket = await office.ended(receiver.url())
    async with office.deliverer() as deliverer:
        await deliverer.tick()
        await until_called(receiver)
        item = await office.delivery_of(ticket)
        await office.replay(item["id"])
        answer_now.set()
        await deliverer.idle()
    assert (await office.delivery_of(ticket))["status"] == "delivered"


async def test_the_log_of_nobody_is_empty(office: PostOffice) -> None:
    assert await office.log() == []
    assert (await office.deployment.http.get(LOG)).json() == {"items": [], "next": None}
    assert LOG.startswith(f"/api/v1/orgs/{ORG}/")
