"""Every end of a job is told, once, to who was named with it, in the words of its surface."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from coatcheck import FailJob, Service, State, Submission
from coatcheck.domain.webhooks import RESULT_BYTES_MAX
from tests.contract.things_service import things
from tests.deployment import bearer
from tests.egress.upstream_server import UpstreamServer
from tests.products.graphs.archives import PROGRAM, post, zipped
from tests.webhooks.post_office import ORG, PostOffice, first_secret, until_called, verified

SUBMIT = f"/api/v1/orgs/{ORG}/services/things/async/thing"

sorrows = Service("sorrows")


@sorrows.post("/fail")
async def fail() -> None:
    raise FailJob("it was not to be", code="sad")


@sorrows.post("/long")
async def long() -> str:
    return "x" * RESULT_BYTES_MAX


async def told(receiver: UpstreamServer) -> Any:
    await until_called(receiver)
    (request,) = receiver.requests
    return verified(request, first_secret())


async def test_a_completed_job_is_told_with_its_result(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    await office.deployment.start_worker(things)
    async with office.delivering():
        answer = await office.deployment.http.post(
            SUBMIT, headers={"X-Webhook-Url": receiver.url("/hook?token=1")}
        )
        assert answer.status_code == 202, answer.text
        body = await told(receiver)
    assert body["type"] == "job.completed"
    shown = (await office.deployment.http.get(answer.json()["poll_url"])).json()
    assert body["data"] == shown | {"result_url": None}
    assert body["data"]["result_summary"] == "posted"
    assert body["timestamp"] == shown["completed_at"]
    (request,) = receiver.requests
    assert (request.method, request.target) == ("POST", "/hook?token=1")
    assert request.header("content-type") == "application/json"


async def test_a_failure_is_told_with_its_error(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    await office.deployment.start_worker(sorrows)
    async with office.delivering():
        await office.submit(receiver.url(), "sorrows.post__fail")
        body = await told(receiver)
    assert body["type"] == "job.failed"
    assert body["data"]["status"] == "failed"
    assert body["data"]["last_error"] == {"code": "sad", "message": "it was not to be"}


async def test_a_long_result_is_left_where_it_is(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    await office.deployment.start_worker(sorrows)
    async with office.delivering():
        ticket = await office.submit(receiver.url(), "sorrows.post__long")
        body = await told(receiver)
    assert body["data"]["result_summary"] is None
    where = f"/api/v1/orgs/{ORG}/services/sorrows/jobs/{ticket.id}"
    assert body["data"]["result_url"] == where
    assert (
        len((await office.deployment.http.get(where)).json()["result_summary"]) == RESULT_BYTES_MAX
    )


async def test_a_job_of_no_service_is_told_plainly(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    async with office.delivering():
        ticket = await office.ended(receiver.url(), endpoint="nameless")
        body = await told(receiver)
    assert body["type"] == "job.cancelled"
    assert (body["data"]["id"], body["data"]["status"]) == (ticket.id, "cancelled")


async def test_an_archive_s_job_is_told_as_its_envelope(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    await office.deployment.start_graphs_worker()
    async with office.delivering():
        url = {"X_Webhook_Url": receiver.url()}
        answer = await post(office.deployment.http, zipped(PROGRAM), "k", **url)
        assert answer.status_code == 202, answer.text
        body = await told(receiver)
    assert body["type"] == "job.completed"
    again = await office.deployment.http.get(f"/v1/graphs/jobs/{answer.json()['jobId']}")
    assert body["data"] == again.json()
    assert body["data"]["result"]["stats"]["filesProcessed"] == len(PROGRAM)


async def test_a_job_that_is_gone_is_told_by_its_facts(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    ticket = await office.ended(receiver.url())
    await office.forget_jobs()
    async with office.delivering():
        body = await told(receiver)
    assert body["data"] == {
        "id": ticket.id,
        "status": "cancelled",
        "attempt_count": 0,
        "error_code": "cancelled",
        "terminal": True,
        "expired": True,
    }


async def test_an_archive_s_job_that_is_gone_is_told_by_its_facts(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    url = {"X_Webhook_Url": receiver.url()}
    answer = await post(office.deployment.http, zipped(PROGRAM), "k", **url)
    job = answer.json()["jobId"]
    assert (await office.deployment.http.post(f"/v1/graphs/jobs/{job}/cancel")).status_code == 200
    await office.forget_jobs()
    async with office.delivering():
        body = await told(receiver)
    assert body["data"] == {
        "status": "failed",
        "jobId": job,
        "terminal": True,
        "operation": "call",
        "expired": True,
        "errorCode": "cancelled",
    }


async def test_the_outbox_keeps_no_customer_s_data(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    await office.deployment.start_worker(sorrows)
    ticket = await office.submit(receiver.url(), "sorrows.post__fail")
    await office.deployment.engine.wait(ticket.id)
    row = await office.sql.fetchval("SELECT d::text FROM webhook_deliveries AS d")
    assert "sad" in row
    assert "it was not to be" not in row


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED])
async def test_a_job_without_a_webhook_leaves_nothing_in_the_outbox(
    office: PostOffice, state: State
) -> None:
    await office.deployment.start_worker(things, sorrows)
    endpoint = "sorrows.post__fail" if state is State.FAILED else "things.post__thing"
    delay = 3_600 if state is State.CANCELLED else None
    ticket = await office.deployment.engine.submit(endpoint, {}, delay=delay)
    if state is State.CANCELLED:
        await office.deployment.engine.cancel(ticket.id)
    assert (await office.deployment.engine.wait(ticket.id)).state is state
    assert await office.sql.fetchval("SELECT count(*) FROM webhook_deliveries") == 0


async def test_the_first_submission_s_webhook_stands(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    first = await office.submit(receiver.url("/first"), delay=3_600, idempotency_key="k")
    again = await office.submit(receiver.url("/second"), delay=3_600, idempotency_key="k")
    assert (first.id, again.created) == (again.id, False)
    await office.deployment.engine.cancel(first.id)
    (item,) = await office.log()
    assert item["url"] == receiver.url("/first")


async def test_many_at_once_are_each_told_to_their_own(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    submissions = [
        Submission(
            "things.post__thing",
            delay=3_600,
            webhook_url=receiver.url(f"/{at}") if at % 2 else None,
        )
        for at in range(6)
    ]
    tickets = await office.deployment.engine.submit_many(submissions)
    for ticket in tickets:
        await office.deployment.engine.cancel(ticket.id)
    urls = {item["job_id"]: item["url"] for item in await office.log()}
    assert urls == {tickets[at].id: receiver.url(f"/{at}") for at in (1, 3, 5)}


async def test_a_webhook_is_kept_from_the_upstream(
    office: PostOffice, receiver: UpstreamServer
) -> None:
    target = {"type": "http", "url": receiver.url()}
    endpoints = [{"method": "POST", "path": "/x", "target": target}]
    definition = {"versions": {"1": {"endpoints": endpoints}}}
    hosted = f"/api/v1/orgs/{ORG}/workspaces/default/hosted-services/far"
    assert (await office.deployment.http.put(hosted, json=definition)).status_code == 200
    await office.deployment.start_gateway_worker()
    answer = await office.deployment.http.post(
        f"/api/v1/orgs/{ORG}/services/far/async/x", headers={"X-Webhook-Url": receiver.url("/h")}
    )
    assert answer.status_code == 202, answer.text
    await until_called(receiver)
    assert receiver.requests[0].header("x-webhook-url") is None


async def test_strangers_order_no_webhooks(office: PostOffice, receiver: UpstreamServer) -> None:
    opened = Service("opened")

    @opened.post("/thing", auth="none")
    async def thing() -> str:
        return "done"

    await office.deployment.start_worker(opened)
    path = f"/api/v1/orgs/{ORG}/services/opened/async/thing"
    webhook = {"X-Webhook-Url": receiver.url()}
    async with httpx2.AsyncClient(
        base_url=office.deployment.http.base_url, trust_env=False
    ) as strangers:
        assert (await strangers.post(path)).status_code == 202
        assert (await strangers.post(path, headers=webhook)).status_code == 401
        member = bearer(office.deployment.key)
        assert (await strangers.post(path, headers=member | webhook)).status_code == 202
