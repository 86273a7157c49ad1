"""Why work failed has one name, whether it was a job or a task, and wherever it is read."""

from __future__ import annotations

from typing import Any

import pytest

from coatcheck import FailJob, Service
from tests.deployment import Deployment

falls = Service("falls")


@falls.post("/always", retries=0)
async def always() -> None:
    raise ValueError("it fell")


@falls.post("/for_good", retries=3)
async def for_good() -> None:
    raise FailJob("it broke", code="broken")


@pytest.mark.parametrize(
    ("path", "cause", "code"),
    [("/always", "handler_error", "max_retries_exhausted"), ("/for_good", "broken", "broken")],
)
async def test_jobs_and_tasks_name_the_same_cause(
    deployment: Deployment, path: str, cause: str, code: str
) -> None:
    await deployment.start_worker(falls)
    await deployment.start_batches_worker()
    deployment.start_maintenance()
    http = deployment.http
    base = "/api/v1/orgs/default"
    ended = await http.post(f"{base}/services/falls/async{path}?wait=30", json={})
    job: Any = ended.json()
    assert (job["last_error"]["code"], job["last_error"]["cause"]) == (code, cause)
    order = {"service": "falls", "endpoint": path, "retries": 0, "tasks": [{}]}
    batch = (await http.post("/v1/jobs?wait=30", json=order)).json()
    assert batch["terminal"]
    (task,) = (await http.get(batch["urls"]["tasks"])).json()["items"]
    # A rerun selects tasks by their code, so that is the cause.
    assert (task["error"]["code"], task["error"]["cause"]) == (cause, cause)
    for one, shown in ((job["id"], job["last_error"]), (task["id"], task["error"])):
        found = (await http.get(f"{base}/jobs/{one}")).json()
        assert found["error"] == shown
