"""An organisation that may hand in nothing new can still repeat itself, and collect."""

from __future__ import annotations

from pathlib import Path

import httpx2

from tests.deployment import Deployment, bearer
from tests.http.auth.stripe_events import BEGAN, SECRET, checkout, subscription, told
from tests.products.gateway.docs_service import docs
from tests.waiting import eventually_async

SUBMIT = "/api/v1/orgs/small/services/docs/async/analyze"


async def test_a_full_queue_refuses_new_work_and_still_knows_its_keys(
    deployment: Deployment,
) -> None:
    worker = await deployment.start_worker(docs)
    await deployment.stop_worker(worker)
    await deployment.create_org("small", backlog_max=1)
    auth = bearer(await deployment.create_key("small"))
    first = await deployment.http.post(
        SUBMIT, headers=auth | {"Idempotency-Key": "one"}, json={"content": "a"}
    )
    assert first.status_code == 202
    refused = await deployment.http.post(SUBMIT, headers=auth, json={"content": "b"})
    assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
    assert int(refused.headers["Retry-After"]) >= 1
    again = await deployment.http.post(
        SUBMIT, headers=auth | {"Idempotency-Key": "one"}, json={"content": "a"}
    )
    assert (again.status_code, again.json()["job_id"]) == (202, first.json()["job_id"])
    assert again.headers["Idempotent-Replayed"] == "true"


async def test_an_organisation_that_does_not_pay_can_repeat_and_read(
    dsn: str, tmp_path: Path
) -> None:
    async with Deployment(dsn, tmp_path, stripe_webhook_secret=SECRET) as deployment:
        await deployment.start_worker(docs)
        await deployment.create_org("small")
        auth = bearer(await deployment.create_key("small"))
        await told(deployment.http, checkout(client_reference_id="small"))
        made = await deployment.http.post(
            SUBMIT, headers=auth | {"Idempotency-Key": "one"}, json={"content": "a"}
        )
        assert made.status_code == 202
        await told(deployment.http, subscription("canceled", at=BEGAN + 60))

        async def refused() -> httpx2.Response | None:
            answer = await deployment.http.post(SUBMIT, headers=auth, json={"content": "b"})
            return answer if answer.status_code == 402 else None

        # The change is pushed; the answer to Stripe may be faster.
        answer: httpx2.Response = await eventually_async(refused, "new work is refused")
        assert answer.json()["code"] == "subscription_inactive"
        again = await deployment.http.post(
            SUBMIT, headers=auth | {"Idempotency-Key": "one"}, json={"content": "a"}
        )
        assert again.json()["job_id"] == made.json()["job_id"]
        read = await deployment.http.get(made.json()["poll_url"], params={"wait": 30}, headers=auth)
        assert read.json()["status"] == "completed"
