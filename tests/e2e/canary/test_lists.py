"""Lists of tasks on their way in: whatever happens, each task is there once and no copy is left."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import httpx2
import pytest

from tests.crash_points import VICTIM, Victim
from tests.e2e.canary.canary_deployment import CanaryDeployment
from tests.e2e.programs import WORKER_IS_READY
from tests.waiting import eventually_async

TASKS = 160
WORDS = "a task that is long " * 3_000
LIST = b"".join(
    json.dumps({"message": f"{number} {WORDS}"}).encode() + b"\n" for number in range(TASKS)
)
"""More than one piece is stored of it."""
POINTS = ["submit.uploading:30", "submit.blob_stored"]
"""A server reads 256 KiB at a time at most."""


async def hand_in(deployment: CanaryDeployment, key: str, told: list[str]) -> None:
    """As a caller does who notes the job that it is told of, and whose server may go away."""
    with suppress(httpx2.HTTPError):
        answer = await deployment.http.post(
            "/v1/jobs",
            params={"service": "demo", "endpoint": "/echo"},
            content=LIST,
            headers={"Content-Type": "application/x-ndjson", "Idempotency-Key": key},
        )
        if answer.is_success:
            told.append(answer.json()["id"])
        else:
            assert (answer.status_code, VICTIM) == (503, Victim.POSTGRESQL), answer.text


async def ended(deployment: CanaryDeployment, job: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        answer = await deployment.http.get(f"/v1/jobs/{job}?wait=10")
        body: dict[str, Any] = answer.json()
        return body if body.get("status") == "completed" else None

    body: dict[str, Any] = await eventually_async(look, "the job has ended")
    return body


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
async def test_a_list_is_taken_in_once_though_its_server_is_struck_at(
    deployment: CanaryDeployment, key: str, point: str
) -> None:
    worker = deployment.work()

    async def ready() -> bool:
        return WORKER_IS_READY in worker.log

    server = await deployment.serve(crash_at=point)
    await eventually_async(ready, "the worker has said what it can do")
    told: list[str] = []
    await deployment.strike_during(server, hand_in(deployment, key, told))
    if VICTIM is not Victim.POSTGRESQL:
        assert told == []
        await deployment.serve()
    if not told:
        await hand_in(deployment, key, told)
    (job,) = told
    counts = (await ended(deployment, job))["counts"]
    assert (counts["total"], counts["succeeded"]) == (TASKS, TASKS)
    await deployment.struck_goes_on()
    assert await deployment.sql.fetchval("SELECT count(*) FROM batches") == 1
    if VICTIM is Victim.PAUSE:
        assert lists(deployment) == []  # who went on has deleted what it had stored
    await deployment.sweep()
    assert lists(deployment) == []
    print(f"{VICTIM.value} struck as a server took a list in at {point}: {TASKS} tasks, no copy")


def lists(deployment: CanaryDeployment) -> list[str]:
    return [path.name for path in deployment.files("blobs") if "lists" in path.parts]
