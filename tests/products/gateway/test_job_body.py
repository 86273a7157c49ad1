"""A job's body: exactly the fields that are promised, and what each says."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, hand_in
from tests.products.gateway.docs_service import gates

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIELDS = [
    "id",
    "org_id",
    "workspace_id",
    "service_id",
    "version_id",
    "endpoint_id",
    "endpoint_key",
    "execution_mode",
    "lane",
    "status",
    "idempotency_key",
    "execution_id",
    "attempt_count",
    "result_summary",
    "last_error",
    "pre_dispatch_age_seconds",
    "stalled",
    "stalled_reason",
    "started_at",
    "completed_at",
    "expires_at",
    "created_at",
    "updated_at",
    "terminal",
    "progress",
    "result_omitted",
    "result_url",
]


async def test_a_completed_job_field_by_field(shared: Deployment) -> None:
    ticket = await hand_in(
        shared.http, "/analyze", {"content": "a b"}, X_Idempotency_Key="batch-42"
    )
    job = await end_of(shared.http, ticket)
    assert list(job) == FIELDS
    assert job["id"] == ticket["job_id"]
    assert len(job["id"]) == 26
    assert job["org_id"] == "default"
    assert job["workspace_id"] == "default"
    assert job["service_id"] == "docs"
    assert job["version_id"] == "docs.v1"
    assert job["endpoint_id"] == "docs.v1.post__analyze"
    assert job["endpoint_key"] == "post__analyze"
    assert job["execution_mode"] == "invocation"
    assert job["lane"] == "standard"
    assert job["status"] == "completed"
    assert job["idempotency_key"] == "batch-42"
    assert job["execution_id"] is None
    assert job["attempt_count"] == 1
    assert job["result_summary"] == {"result": {"entities": ["a", "b"]}, "confidence": 0.95}
    assert job["last_error"] is None
    assert job["pre_dispatch_age_seconds"] >= 0
    assert (job["stalled"], job["stalled_reason"]) == (False, None)
    assert job["terminal"] is True
    assert job["progress"] is None


async def test_times_are_utc_and_in_their_order(shared: Deployment) -> None:
    job = await end_of(shared.http, await hand_in(shared.http, "/talk"))
    names = ["created_at", "started_at", "completed_at", "updated_at"]
    assert all(job[name].endswith("Z") for name in names)
    times = [datetime.fromisoformat(job[name]) for name in names]
    assert times == sorted(times)
    assert job["expires_at"].endswith("Z")


async def test_a_running_job_shows_its_progress(shared: Deployment, gate: str) -> None:
    ticket = await hand_in(shared.http, "/advance", {"gate": gate})
    await gates.begun[gate].wait()
    seen = await shared.http.get(ticket["poll_url"])
    gates.opened[gate].set()
    while (seen.json()["status"], seen.json()["progress"] is None) != ("processing", False):
        seen = await shared.http.get(
            ticket["poll_url"], params={"wait": 60}, headers={"If-None-Match": seen.headers["etag"]}
        )
    assert seen.json()["progress"] == {"fraction": 0.5, "note": "half of it"}
    assert seen.json()["attempt_count"] == 1


async def test_a_ticket_names_every_address_of_its_job(shared: Deployment) -> None:
    answer = await shared.http.post(paths.submit("/talk"), json={})
    ticket = answer.json()
    poll = paths.job(ticket["job_id"])
    assert ticket == {
        "job_id": ticket["job_id"],
        "status": "queued",
        "poll_url": poll,
        "events_url": poll + "/events",
        "cancel_url": poll + "/cancel",
        "artifacts_url": poll + "/artifacts",
        "terminal": False,
    }
    assert answer.headers["location"] == poll
    assert answer.headers["link"] == (
        f'<{poll}/events>; rel="events", <{poll}/cancel>; rel="cancel",'
        f' <{poll}/artifacts>; rel="artifacts"'
    )
    assert int(answer.headers["retry-after"]) >= 1
    for url in (ticket["poll_url"], ticket["events_url"]):
        assert (await shared.http.head(url)).status_code == 200


async def test_integers_stay_integers_and_floats_stay_floats(shared: Deployment) -> None:
    value = '{"big":123456789012345678901234567890,"float":1.0,"int":1,"tiny":1e-300}'
    for path, result in (("/echo", value), ("/echo/a%20b", f'["a b",{value}]')):
        answer = await shared.http.post(
            paths.submit(path),
            content=f'{{"value":{value}}}',
            headers={"Content-Type": "application/json"},
        )
        seen = await shared.http.get(answer.json()["poll_url"], params={"wait": 60})
        assert f'"result_summary":{result},' in seen.text
