"""Who is told of every change of one job's state, beside who is told of its end."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from coatcheck import Service, Submission
from coatcheck.core.webhook_payloads import WebhookPayloads, WholeBody
from coatcheck.domain.errors import InvalidSubmission, UrlForbidden
from coatcheck.domain.job import JobView
from coatcheck.domain.webhooks import DeliveryEvent, SubjectKind, WebhookScope, target_id
from tests.deployment import bearer
from tests.egress.upstream_server import UpstreamServer
from tests.products.graphs.archives import PROGRAM, post, zipped
from tests.webhooks.webhook_deliveries import ORG, WebhookDeliveries, first_secret, verified

SUBMIT = f"/api/v1/orgs/{ORG}/services/slow/async/work"

slow = Service("slow")
go_on: asyncio.Event


@pytest.fixture(autouse=True)
def not_yet() -> None:
    global go_on
    go_on = asyncio.Event()


@slow.post("/work")
async def work() -> str:
    await go_on.wait()
    return "done"


@slow.post("/open", auth="none")
async def for_anyone() -> str:
    return "done"


async def delivered(hooks: WebhookDeliveries) -> None:
    async with hooks.deliverer() as deliverer:
        while await hooks.log(status="pending"):
            await hooks.deliver_due(deliverer)


def bodies(receiver: UpstreamServer, path: str) -> list[Any]:
    return [
        verified(request, first_secret()) for request in receiver.requests if request.target == path
    ]


def chain(told: list[Any]) -> list[tuple[str, str, str]]:
    return [(body["type"], body["previous_state"], body["state"]) for body in told]


async def test_every_state_is_told_in_order_and_the_end_to_who_wants_only_that(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    await hooks.deployment.start_worker(slow)
    answer = await hooks.deployment.http.post(
        SUBMIT,
        headers={
            "X-Webhook-Url": receiver.url("/end"),
            "X-State-Webhook-Url": receiver.url("/states"),
        },
    )
    assert answer.status_code == 202, answer.text
    job = answer.json()["job_id"]
    while (await hooks.deployment.engine.get(job)).state != "processing":
        await hooks.deployment.engine.wait(
            job, since=await hooks.deployment.engine.get(job), timeout=5
        )
    go_on.set()
    await hooks.deployment.engine.wait(job)
    await delivered(hooks)
    assert chain(bodies(receiver, "/states")) == [
        ("job.dispatching", "queued", "dispatching"),
        ("job.processing", "dispatching", "processing"),
        ("job.completed", "processing", "completed"),
    ]
    assert chain(bodies(receiver, "/end")) == [("job.completed", "processing", "completed")]
    assert bodies(receiver, "/states")[-1]["data"] == bodies(receiver, "/end")[0]["data"]


async def test_one_url_that_is_named_for_both_is_told_once_of_the_end(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    url = receiver.url("/both")
    ticket = await hooks.submit(url, delay=3_600, state_webhook_url=url)
    await hooks.deployment.engine.cancel(ticket.id)
    await delivered(hooks)
    assert chain(bodies(receiver, "/both")) == [("job.cancelled", "staged", "cancelled")]


async def test_an_archive_s_job_tells_its_states(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    url = {"X_State_Webhook_Url": receiver.url("/states")}
    answer = await post(hooks.deployment.http, zipped(PROGRAM), "k", **url)
    assert answer.status_code == 202, answer.text
    job = answer.json()["jobId"]
    assert (await hooks.deployment.http.post(f"/v1/graphs/jobs/{job}/cancel")).status_code == 200
    await delivered(hooks)
    (body,) = bodies(receiver, "/states")
    assert (body["previous_state"], body["state"]) == ("queued", "cancelled")
    assert body["data"]["jobId"] == job


async def test_a_url_that_may_not_be_called_is_refused_by_its_header(
    hooks: WebhookDeliveries,
) -> None:
    await hooks.deployment.start_worker(slow)
    answer = await hooks.deployment.http.post(
        SUBMIT, headers={"X-State-Webhook-Url": "https://10.0.0.1/"}
    )
    assert answer.status_code == 422
    assert answer.json()["code"] == "url_forbidden"
    assert "X-State-Webhook-Url" in answer.json()["detail"]


async def test_strangers_cannot_order_states_in_the_organisation_s_name(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    await hooks.deployment.start_worker(slow)
    async with httpx2.AsyncClient(base_url=hooks.deployment.http.base_url) as stranger:
        path = f"/api/v1/orgs/{ORG}/services/slow/async/open"
        assert (await stranger.post(path)).status_code == 202
        refused = await stranger.post(path, headers={"X-State-Webhook-Url": receiver.url()})
    assert refused.status_code == 401
    key = bearer(await hooks.deployment.create_key())
    taken = await hooks.deployment.http.post(
        path, headers={"X-State-Webhook-Url": receiver.url(), **key}
    )
    assert taken.status_code == 202


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"state_webhook_url": "ftp://example.com/"}, UrlForbidden),
        ({"state_webhook_url": 1}, InvalidSubmission),
        (
            {"state_webhook_url": "https://a.test/", "state_webhook_detail": "some"},
            InvalidSubmission,
        ),
    ],
)
async def test_what_makes_no_sense_is_refused_by_its_name(
    hooks: WebhookDeliveries, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match="state_webhook_"):
        await hooks.deployment.engine.submit("slow.post__work", {}, **options)


async def test_many_at_once_are_each_told_to_their_own(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    submissions = [
        Submission(
            "slow.post__work",
            delay=3_600,
            webhook_url=receiver.url(f"/end/{at}") if at % 3 == 0 else None,
            state_webhook_url=receiver.url(f"/states/{at}") if at % 2 == 0 else None,
        )
        for at in range(12)
    ]
    for ticket in await hooks.deployment.engine.submit_many(submissions):
        await hooks.deployment.engine.cancel(ticket.id)
    await delivered(hooks)
    ends = {f"/end/{at}" for at in range(0, 12, 3)}
    states = {f"/states/{at}" for at in range(0, 12, 2)}
    assert {request.target for request in receiver.requests} == ends | states
    assert len(receiver.requests) == len(ends | states)


async def test_a_state_of_a_job_that_is_gone_is_told_by_its_facts(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    go_on.set()
    await hooks.deployment.start_worker(slow)
    ticket = await hooks.deployment.engine.submit(
        "slow.post__work", {}, state_webhook_url=receiver.url("/states")
    )
    await hooks.deployment.engine.wait(ticket.id)
    await hooks.forget_jobs()
    await delivered(hooks)
    first, *_, last = bodies(receiver, "/states")
    for body, status, terminal in ((first, "dispatching", False), (last, "completed", True)):
        assert body["data"] == {
            "id": ticket.id,
            "status": status,
            "attempt_count": 1,
            "error_code": None,
            "terminal": terminal,
            "expired": True,
        }


async def test_a_surface_may_have_a_body_of_its_own_and_know_what_was_told_before(
    hooks: WebhookDeliveries,
) -> None:
    url = "https://example.com/"
    ticket = await hooks.deployment.engine.submit(
        "slow.post__work", {}, state_webhook_url=url, state_webhook_detail="phases"
    )
    assert await hooks.sql.fetchval("SELECT webhook FROM jobs") == WebhookScope.PHASES
    for state in ("dispatching", "processing"):
        facts = f'{{"state": "{state}", "attempt": 1, "endpoint": "slow.post__work"}}'
        await hooks.put(url, subject_id=ticket.uuid, event=f"job.{state}", facts=facts)
    rows = await hooks.sql.fetch("SELECT id, created_at FROM webhook_deliveries ORDER BY id")
    first, second = [
        DeliveryEvent(
            ORG,
            row["id"],
            target_id(ORG, url),
            SubjectKind.JOB,
            ticket.uuid,
            None,
            "job.processing",
            {"state": "processing", "attempt": 1, "endpoint": "slow.post__work"},
            row["created_at"],
        )
        for row in rows
    ]

    async def flat(event: DeliveryEvent, view: JobView | None) -> WholeBody:
        before = await hooks.deployment.engine.webhooks.previous_facts(event)
        return WholeBody({"job_id": view and view.id, "before": before and before["state"]})

    own = WebhookPayloads(hooks.deployment.engine, otherwise=flat)
    assert await own.body(first) == f'{{"job_id":"{ticket.id}","before":null}}'.encode()
    assert await own.body(second) == f'{{"job_id":"{ticket.id}","before":"dispatching"}}'.encode()
