"""Handing errands in, and waiting for what becomes of them."""

from __future__ import annotations

from typing import Any

from tests.browser.errands_service import gates
from tests.deployment import Deployment
from tests.waiting import eventually_async

ORG = "/api/v1/orgs/default"
JOBS = f"{ORG}/jobs"


async def hand_in(
    deployment: Deployment, path: str, headers: dict[str, str] | None = None, **input_: Any
) -> str:
    """The id of a new job."""
    answer = await deployment.http.post(
        f"{ORG}/services/errands/async{path}", json=input_, headers=headers
    )
    assert answer.status_code == 202, answer.text
    job_id: str = answer.json()["job_id"]
    return job_id


async def state_of(deployment: Deployment, job_id: str) -> str:
    answer = await deployment.http.get(f"{JOBS}/{job_id}")
    assert answer.status_code == 200, answer.text
    state: str = answer.json()["state"]
    return state


async def end_of(deployment: Deployment, job_id: str) -> dict[str, Any]:
    """The job once it has ended."""
    answer = await deployment.http.get(f"{JOBS}/{job_id}", params={"wait": "60"})
    assert answer.status_code == 200, answer.text
    job: dict[str, Any] = answer.json()
    assert job["terminal"]
    return job


async def ended(deployment: Deployment, path: str, **input_: Any) -> dict[str, Any]:
    """A new job, once it has ended."""
    return await end_of(deployment, await hand_in(deployment, path, **input_))


async def waiting_at(deployment: Deployment, gate: str, then: str | None = None) -> str:
    """A job that runs until the gate, or both of them, are opened."""
    job_id = await hand_in(deployment, "/wait", gate=gate, then=then)
    await gates.begun[gate].wait()
    return job_id


async def batch(
    deployment: Deployment, tasks: list[dict[str, Any]], **options: Any
) -> dict[str, Any]:
    body = {"service": "errands", "endpoint": "/count", "tasks": tasks, **options}
    answer = await deployment.http.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def end_of_batch(deployment: Deployment, batch_id: str) -> dict[str, Any]:
    answer = await deployment.http.get(f"/v1/jobs/{batch_id}", params={"wait": "60"})
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def eventually_state(deployment: Deployment, job_id: str, state: str) -> None:
    async def reached() -> bool:
        return await state_of(deployment, job_id) == state

    await eventually_async(reached, f"the job is {state}")
