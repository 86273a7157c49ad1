"""The control plane hands work over and never does it."""

from __future__ import annotations

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, hand_in, know_docs
from tests.products.gateway.docs_service import docs
from tests.products.gateway.test_job_body import FIELDS


async def test_a_job_waits_as_long_as_there_is_no_worker(deployment: Deployment) -> None:
    await know_docs(deployment)
    ticket = await hand_in(deployment.http, "/analyze", {"content": "a"})
    job = (await deployment.http.get(ticket["poll_url"])).json()
    assert list(job) == FIELDS
    assert (job["status"], job["terminal"], job["attempt_count"]) == ("queued", False, 0)
    assert job["result_summary"] is None
    assert (job["started_at"], job["completed_at"], job["expires_at"]) == (None, None, None)
    later = (await deployment.http.get(ticket["poll_url"])).json()
    assert later["pre_dispatch_age_seconds"] > job["pre_dispatch_age_seconds"]
    await deployment.start_worker(docs)
    assert (await end_of(deployment.http, ticket))["status"] == "completed"


async def test_a_synchronous_call_without_a_worker_becomes_a_ticket(deployment: Deployment) -> None:
    await know_docs(deployment)
    answer = await deployment.http.post(
        paths.call("/analyze"), json={"content": "a"}, headers={"Prefer": "wait=0.2"}
    )
    assert (answer.status_code, answer.json()["status"]) == (202, "queued")
    assert (await deployment.http.get(answer.json()["poll_url"])).json()["status"] == "queued"


async def test_a_waiting_job_is_cancelled_at_once(deployment: Deployment) -> None:
    await know_docs(deployment)
    ticket = await hand_in(deployment.http, "/process")
    answer = await deployment.http.post(ticket["cancel_url"])
    assert answer.status_code == 200
    job = answer.json()
    assert (job["status"], job["terminal"], job["attempt_count"]) == ("cancelled", True, 0)
    assert job["last_error"]["code"] == "cancelled"
    assert answer.headers["etag"] == (await deployment.http.get(ticket["poll_url"])).headers["etag"]
