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
from tests.webhooks.webhook_deliveries import (
    ORG,
    WebhookDeliveries,
    first_secret,
    until_called,
    verified,
)

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
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    await hooks.deployment.start_worker(things)
    async with hooks.delivering():
        answer = await hooks.deployment.http.post(
            SUBMIT, headers={"X-Webhook-Url": receiver.url("/hook?token=1")}
        )
        assert answer.status_code == 202, answer.text
        body = await told(receiver)
    assert body["type"] == "job.completed"
    shown = (await hooks.deployment.http.get(answer.json()["poll_url"])).json()
    assert body["data"] == shown | {"result_url": None}
    assert body["data"]["result_summary"] == "posted"
    assert body["timestamp"] == shown["completed_at"]
    (request,) = receiver.requests
    assert (request.method, request.target) == ("POST", "/hook?token=1")
    assert request.header("content-type") == "application/json"


async def test_a_failure_is_told_with_its_error(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    await hooks.deployment.start_worker(sorrows)
    async with hooks.delivering():
        await hooks.submit(receiver.url(), "sorrows.post__fail")
        body = await told(receiver)
    assert body["type"] == "job.failed"
    assert body["data"]["status"] == "failed"
    assert body["data"]["last_error"] == {
        "code": "sad",
        "message": "it was not to be",
        "cause": "sad",
    }


async def test_a_long_result_is_left_where_it_is(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    await hooks.deployment.start_worker(sorrows)
    async with hooks.delivering():
        ticket = await hooks.submit(receiver.url(), "sorrows.post__long")
        body = await told(receiver)
    assert body["data"]["result_summary"] is None
    where = f"/api/v1/orgs/{ORG}/services/sorrows/jobs/{ticket.id}"
    assert body["data"]["result_url"] == where
    assert (
        len((await hooks.deployment.http.get(where)).json()["result_summary"]) == RESULT_BYTES_MAX
    )


async def test_a_job_of_no_service_is_told_plainly(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    async with hooks.delivering():
        ticket = await hooks.ended(receiver.url(), endpoint="nameless")
        body = await told(receiver)
    assert body["type"] == "job.cancelled"
    assert (body["data"]["id"], body["data"]["status"]) == (ticket.id, "cancelled")


async def test_an_archive_s_job_is_told_as_its_envelope(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    await hooks.deployment.start_graphs_worker()
    async with hooks.delivering():
        url = {"X_Webhook_Url": receiver.url()}
        answer = await post(hooks.deployment.http, zipped(PROGRAM), "k", **url)
        assert answer.status_code == 202, answer.text
        body = await told(receiver)
    assert body["type"] == "job.completed"
    again = await hooks.deployment.http.get(f"/v1/graphs/jobs/{answer.json()['jobId']}")
    assert body["data"] == again.json()
    assert body["data"]["result"]["stats"]["filesProcessed"] == len(PROGRAM)


async def test_a_job_that_is_gone_is_told_by_its_facts(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    ticket = await hooks.ended(receiver.url())
    await hooks.forget_jobs()
    async with hooks.delivering():
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
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    url = {"X_Webhook_Url": receiver.url()}
    answer = await post(hooks.deployment.http, zipped(PROGRAM), "k", **url)
    job = answer.json()["jobId"]
    assert (await hooks.deployment.http.post(f"/v1/graphs/jobs/{job}/cancel")).status_code == 200
    await hooks.forget_jobs()
    async with hooks.delivering():
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
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    await hooks.deployment.start_worker(sorrows)
    ticket = await hooks.submit(receiver.url(), "sorrows.post__fail")
    await hooks.deployment.engine.wait(ticket.id)
    row = await hooks.sql.fetchval("SELECT d::text FROM webhook_deliveries AS d")
    assert "sad" in row
    assert "it was not to be" not in row


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED])
async def test_a_job_without_a_webhook_leaves_nothing_in_the_outbox(
    hooks: WebhookDeliveries, state: State
) -> None:
    await hooks.deployment.start_worker(things, sorrows)
    endpoint = "sorrows.post__fail" if state is State.FAILED else "things.post__thing"
    delay = 3_600 if state is State.CANCELLED else None
    ticket = await hooks.deployment.engine.submit(endpoint, {}, delay=delay)
    if state is State.CANCELLED:
        await hooks.deployment.engine.cancel(ticket.id)
    assert (await hooks.deployment.engine.wait(ticket.id)).state is state
    assert await hooks.sql.fetchval("SELECT count(*) FROM webhook_deliveries") == 0


async def test_the_first_submission_s_webhook_stands(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    first = await hooks.submit(receiver.url("/first"), delay=3_600, idempotency_key="k")
    again = await hooks.submit(receiver.url("/second"), delay=3_600, idempotency_key="k")
    assert (first.id, again.created) == (again.id, False)
    await hooks.deployment.engine.cancel(first.id)
    (item,) = await hooks.log()
    assert item["url"] == receiver.url("/first")


async def test_many_at_once_are_each_told_to_their_own(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    submissions = [
        Submission(
            "things.post__thing",
            delay=3_600,
            webhook_url=receiver.url(f"/{at}") if at % 2 else None,
        )
        for at in range(6)
    ]
    tickets = await hooks.deployment.engine.submit_many(submissions)
    for ticket in tickets:
        await hooks.deployment.engine.cancel(ticket.id)
    urls = {item["job_id"]: item["url"] for item in await hooks.log()}
    assert urls == {tickets[at].id: receiver.url(f"/{at}") for at in (1, 3, 5)}


async def test_a_webhook_is_kept_from_the_upstream(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    target = {"type": "http", "url": receiver.url()}
    endpoints = [{"method": "POST", "path": "/x", "target": target}]
    definition = {"versions": {"1": {"endpoints": endpoints}}}
    hosted = f"/api/v1/orgs/{ORG}/workspaces/default/hosted-services/far"
    assert (await hooks.deployment.http.put(hosted, json=definition)).status_code == 200
    await hooks.deployment.start_gateway_worker()
    answer = await hooks.deployment.http.post(
        f"/api/v1/orgs/{ORG}/services/far/async/x", headers={"X-Webhook-Url": receiver.url("/h")}
    )
    assert answer.status_code == 202, answer.text
    await until_called(receiver)
    assert receiver.requests[0].header("x-webhook-url") is None


async def test_strangers_order_no_webhooks(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    opened = Service("opened")

    @opened.post("/thing", auth="none")
    async def thing() -> str:
        return "done"

    await hooks.deployment.start_worker(opened)
    path = f"/api/v1/orgs/{ORG}/services/opened/async/thing"
    webhook = {"X-Webhook-Url": receiver.url()}
    async with httpx2.AsyncClient(
        base_url=hooks.deployment.http.base_url, trust_env=False
    ) as strangers:
        assert (await strangers.post(path)).status_code == 202
        assert (await strangers.post(path, headers=webhook)).status_code == 401
        member = bearer(hooks.deployment.key)
        assert (await strangers.post(path, headers=member | webhook)).status_code == 202
