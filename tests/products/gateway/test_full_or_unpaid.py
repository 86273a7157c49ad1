"""An organisation that may hand in nothing new can still repeat itself, and collect."""

from __future__ import annotations

from pathlib import Path

import httpx2

from tests.http.auth.stripe_events import BEGAN, SECRET, checkout, subscription, told
from tests.products.gateway.docs_service import docs
from tests.products.house import House, bearer
from tests.waiting import eventually_async

SUBMIT = "/api/v1/orgs/small/services/docs/async/analyze"


async def test_a_full_queue_refuses_new_work_and_still_knows_its_keys(house: House) -> None:
    worker = await house.work(docs)
    await house.dismiss(worker)
    await house.org("small", backlog_max=1)
    auth = bearer(await house.create_key("small"))
    first = await house.http.post(
        SUBMIT, headers=auth | {"Idempotency-Key": "one"}, json={"content": "a"}
    )
    assert first.status_code == 202
    refused = await house.http.post(SUBMIT, headers=auth, json={"content": "b"})
    assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
    assert int(refused.headers["Retry-After"]) >= 1
    again = await house.http.post(
        SUBMIT, headers=auth | {"Idempotency-Key": "one"}, json={"content": "a"}
    )
    assert (again.status_code, again.json()["job_id"]) == (202, first.json()["job_id"])
    assert again.headers["Idempotent-Replayed"] == "true"


async def test_an_organisation_that_does_not_pay_can_repeat_and_read(
    dsn: str, tmp_path: Path
) -> None:
    async with House(dsn, tmp_path, stripe_webhook_secret=SECRET) as house:
        await house.work(docs)
        await house.org("small")
        auth = bearer(await house.create_key("small"))
        await told(house.http, checkout(client_reference_id="small"))
        made = await house.http.post(
            SUBMIT, headers=auth | {"Idempotency-Key": "one"}, json={"content": "a"}
        )
        assert made.status_code == 202
        await told(house.http, subscription("canceled", at=BEGAN + 60))

        async def refused() -> httpx2.Response | None:
            answer = await house.http.post(SUBMIT, headers=auth, json={"content": "b"})
            return answer if answer.status_code == 402 else None

        # The change is pushed; the answer to Stripe may be faster.
        answer: httpx2.Response = await eventually_async(refused, "new work is refused")
        assert answer.json()["code"] == "subscription_inactive"
        again = await house.http.post(
            SUBMIT, headers=auth | {"Idempotency-Key": "one"}, json={"content": "a"}
        )
        assert again.json()["job_id"] == made.json()["job_id"]
        read = await house.http.get(made.json()["poll_url"], params={"wait": 30}, headers=auth)
        assert read.json()["status"] == "completed"
