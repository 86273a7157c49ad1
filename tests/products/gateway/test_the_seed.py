"""The examples of the document that the gateway is built from, run as they are written there."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.deployment import Deployment
from tests.products.gateway.docs_service import docs_v2
from tests.waiting import eventually_async

SERVICE = "/api/v1/orgs/default/services/docs"
HOSTED = "/api/v1/orgs/default/workspaces/default/hosted-services/docs"


async def test_submitting_a_job(staffed: Deployment) -> None:
    async with caller(staffed) as api:
        response = await api.post(
            f"{SERVICE}/async/analyze",
            headers={
                "Authorization": f"Bearer {staffed.key}",
                "Content-Type": "application/json",
                "X-HSL-Lane": "standard",
                "X-Idempotency-Key": "batch-42",
            },
            json={"content": "Long document...", "analysis_type": "entities"},
        )
    assert response.status_code == 202
    job = response.json()
    assert job["status"] in ("staged", "queued")
    assert job["poll_url"] == f"{SERVICE}/jobs/{job['job_id']}"


async def test_polling_for_status(staffed: Deployment) -> None:
    async with caller(staffed) as api:
        job_id = await submitted(api, f"{SERVICE}/async/analyze", {"content": "Long document"})
        poll_url = f"{SERVICE}/jobs/{job_id}"

        async def ended() -> dict[str, Any] | None:
            job: dict[str, Any] = (await api.get(poll_url)).json()
            return job if job["status"] in ("completed", "failed", "cancelled") else None

        job = await eventually_async(ended, "the job has ended")
    assert job["status"] == "completed"
    assert job["result_summary"] == {
        "result": {"entities": ["Long", "document"]},
        "confidence": 0.95,
    }
    assert job.get("last_error") is None


async def test_versioned_submission(staffed: Deployment) -> None:
    await staffed.start_worker(docs_v2)
    async with caller(staffed) as api:
        job_id = await submitted(api, f"{SERVICE}/v2/async/analyze", {"content": "Long document"})
        job = await collected(api, job_id)
    assert job["result_summary"] == {"version": 2, "words": 2}


async def test_the_target_method_header(staffed: Deployment) -> None:
    async with caller(staffed) as api:
        job_id = await submitted(
            api,
            f"{SERVICE}/async/items/123",
            {"status": "processed"},
            {"X-HSL-Target-Method": "PUT"},
        )
        job = await collected(api, job_id)
    assert job["endpoint_key"] == "put__items_item"
    assert job["result_summary"] == {"item": 123, "status": "processed"}


async def test_the_batch_status_check(staffed: Deployment) -> None:
    async with caller(staffed) as api:
        ids = [await submitted(api, f"{SERVICE}/async/process", {}) for _ in range(3)]
        answer = await api.get(f"{HOSTED}/jobs/batch-status?job_ids={','.join(ids)}")
    assert answer.status_code == 200
    assert [job["id"] for job in answer.json()["items"]] == ids


async def test_a_priority_lane(staffed: Deployment) -> None:
    async with caller(staffed) as api:
        job_id = await submitted(
            api,
            f"{SERVICE}/async/process",
            {"priority": "high", "data": "..."},
            {"X-HSL-Lane": "urgent"},
        )
        job = await collected(api, job_id)
    assert (job["lane"], job["status"]) == ("urgent", "completed")


async def test_an_idempotency_key(staffed: Deployment) -> None:
    key = {"X-Idempotency-Key": "import-batch-2025-03-15"}
    async with caller(staffed) as api:
        first = await submitted(
            api, f"{SERVICE}/async/process", {"batch_id": "2025-03-15"}, headers=key
        )
        again = await submitted(
            api, f"{SERVICE}/async/process", {"batch_id": "2025-03-15"}, headers=key
        )
        assert again == first
        assert (await collected(api, first))["idempotency_key"] == key["X-Idempotency-Key"]


async def test_listing_jobs(staffed: Deployment) -> None:
    async with caller(staffed) as api:
        ids = [await submitted(api, f"{SERVICE}/async/process", {}) for _ in range(3)]
        answer = await api.get(f"{HOSTED}/jobs?offset=0&limit=50")
    listed = answer.json()
    assert [job["id"] for job in listed["items"]] == ids[::-1]
    assert listed["total"] == 3


def caller(deployment: Deployment) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=deployment.http.base_url,
        headers={"Authorization": f"Bearer {deployment.key}"},
        trust_env=False,
        timeout=60,
    )


async def submitted(
    api: httpx2.AsyncClient, path: str, body: object, headers: dict[str, str] | None = None
) -> str:
    answer = await api.post(path, json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def collected(api: httpx2.AsyncClient, job_id: str) -> dict[str, Any]:
    job: dict[str, Any] = (await api.get(f"{SERVICE}/jobs/{job_id}?wait=60")).json()
    return job
