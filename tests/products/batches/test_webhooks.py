"""What the webhook of a batch is told: its end once, failures one by one, successes together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from coatcheck.maintenance.webhooks import WebhookDeliverer
from tests.all_products import payloads
from tests.deployment import Deployment
from tests.egress.upstream_server import UpstreamServer, plain, upstream_server
from tests.products.batches.asking import end_of, submit, tasks_of
from tests.products.batches.sums import BREAKS
from tests.waiting import eventually_async
from tests.webhooks.webhook_deliveries import first_secret, verified

TYPES = {"batch.completed", "task.failed", "tasks.succeeded"}
EVERY = ["completed", "task.failed", "tasks.succeeded"]


@pytest.fixture
async def receiver() -> AsyncIterator[UpstreamServer]:
    async with upstream_server(plain()) as server:
        yield server


@pytest.fixture
async def telling_deployment(working_deployment: Deployment) -> AsyncIterator[Deployment]:
    """A deployment that delivers webhooks, as a server does."""
    deliverer = WebhookDeliverer(
        working_deployment.settings,
        payloads(working_deployment.context).body,
        working_deployment.engine.database,
    )
    await deliverer.begin()
    yield working_deployment
    await deliverer.stop()


async def told(receiver: UpstreamServer, wanted: int) -> dict[str, list[Any]]:
    """What came, by type, once so much has come."""

    async def look() -> bool:
        return len(receiver.requests) >= wanted

    await eventually_async(look, f"{wanted} webhooks have come")
    by_type: dict[str, list[Any]] = {}
    for request in receiver.requests:
        body = verified(request, first_secret())
        by_type.setdefault(body["type"], []).append(body["data"])
    return by_type


async def test_the_end_of_a_run_is_told_with_its_counts(
    telling_deployment: Deployment, receiver: UpstreamServer
) -> None:
    http = telling_deployment.http
    job = await submit(http, [{"a": 1}, {"a": -1}], webhook_url=receiver.url("/hook"))
    ended = await end_of(http, job)
    ((data,),) = (await told(receiver, 1)).values()
    assert (data["id"], data["run_id"]) == (job["id"], job["runs"][0]["id"])
    assert data["run"] == {
        "status": "completed",
        "run_number": 1,
        "total": 2,
        "succeeded": 1,
        "failed": 1,
        "cancelled": 0,
    }
    assert data["job"] == ended


async def test_failures_are_told_one_by_one_and_successes_together(
    telling_deployment: Deployment, receiver: UpstreamServer
) -> None:
    http = telling_deployment.http
    tasks = [{"a": n} for n in range(20)] + [{"custom_id": "bad", "input": {"a": -1}}, {"a": -2}]
    job = await submit(http, tasks, webhook_url=receiver.url("/"), webhook_events=EVERY)
    await end_of(http, job)

    async def all_told() -> dict[str, list[Any]] | None:
        by_type = await told(receiver, 4)
        together = sum(data["run"]["succeeded"] for data in by_type.get("tasks.succeeded", ()))
        return by_type if together == 20 and set(by_type) == TYPES else None

    by_type = await eventually_async(all_told, "every success and the end were told")
    assert len(by_type["batch.completed"]) == 1
    assert len(by_type["tasks.succeeded"]) < 20
    failed = {data["id"]: data for data in by_type["task.failed"]}
    assert len(failed) == len(by_type["task.failed"]) == 2
    for task in await tasks_of(http, job, status="failed"):
        # It was told before the job had an end.
        assert failed[task["id"]]["task"] | {"expires_at": task["expires_at"]} == task
        assert failed[task["id"]]["job_id"] == job["id"]
        assert failed[task["id"]]["error_code"] == "negative"


async def test_a_batch_that_was_deleted_before_it_was_told_is_told_by_its_facts(
    working_deployment: Deployment, receiver: UpstreamServer
) -> None:
    http = working_deployment.http
    url = receiver.url("/")
    job = await submit(http, [{"a": -1}], webhook_url=url, webhook_events=["task.failed"])
    await end_of(http, job)
    assert (await http.delete(job["urls"]["poll"])).status_code == 204
    deliverer = WebhookDeliverer(
        working_deployment.settings,
        payloads(working_deployment.context).body,
        working_deployment.engine.database,
    )
    await deliverer.begin()
    try:
        ((data,),) = (await told(receiver, 1)).values()
    finally:
        await deliverer.stop()
    assert (data["task"], data["job_id"], data["error_code"]) == (None, None, "negative")


async def test_who_asks_for_alerts_is_told_of_jobs_without_an_attempt_left(
    telling_deployment: Deployment, receiver: UpstreamServer
) -> None:
    http, webhooks = telling_deployment.http, telling_deployment.engine.webhooks
    endpoint = await webhooks.create_endpoint("default", receiver.url("/"), ["job.alert"])
    ended = await end_of(http, await submit(http, [{"a": -1}, {"a": BREAKS}]))
    assert ended["counts"]["failed"] == 2
    refused = await telling_deployment.engine.submit("sums.post__add", {"a": -1})
    broken = await telling_deployment.engine.submit("sums.post__add", {"a": BREAKS})
    for ticket in (refused, broken):
        assert (await telling_deployment.engine.wait(ticket.id)).state == "failed"
    page = await webhooks.deliveries("default", endpoint=endpoint.id, limit=10)
    assert [each.event for each in page] == ["job.alert"]

    async def is_told() -> bool:
        return bool(receiver.requests)

    await eventually_async(is_told, "the endpoint is told")
    secret = (await webhooks.secret("default", endpoint.id)).secret
    told = verified(receiver.requests[0], secret)
    assert (told["type"], told["state"], told["data"]["id"]) == ("job.alert", "failed", broken.id)
    assert told["data"]["last_error"]["code"] == "max_retries_exhausted"


async def test_an_endpoint_is_told_of_every_batch_s_end_and_of_failures_if_it_names_them(
    telling_deployment: Deployment, receiver: UpstreamServer
) -> None:
    http, webhooks = telling_deployment.http, telling_deployment.engine.webhooks
    ends = await webhooks.create_endpoint("default", receiver.url("/ends"), ["*"])
    tasks = await webhooks.create_endpoint("default", receiver.url("/tasks"), ["task.failed"])
    job = await submit(http, [{"a": 1}, {"a": -1}])
    ended = await end_of(http, job)

    async def both_told() -> bool:
        return len(receiver.requests) >= 2

    await eventually_async(both_told, "both endpoints were told")
    by_path = {request.target: request for request in receiver.requests}
    assert len(receiver.requests) == len(by_path) == 2
    end = verified(by_path["/ends"], (await webhooks.secret("default", ends.id)).secret)
    assert (end["type"], end["data"]["job"]) == ("batch.completed", ended)
    failure = verified(by_path["/tasks"], (await webhooks.secret("default", tasks.id)).secret)
    assert (failure["type"], failure["data"]["error_code"]) == ("task.failed", "negative")
