"""Running again, cancelling, deleting."""

from __future__ import annotations

import pytest

from tests.deployment import Deployment
from tests.products.batches import sums
from tests.products.batches.asking import (
    end_of,
    know_sums,
    problem,
    submit,
    tasks_of,
    told,
)
from tests.products.batches.sums import gates

TASKS = [{"a": 1}, {"custom_id": "mended", "input": {"a": 41, "b": 1}}, {"a": -1}]


@pytest.fixture
async def ended_job(working_deployment: Deployment) -> dict[str, object]:
    """One success, one failure that will be mended, one that stays."""
    sums.broken.add(41)
    try:
        job = await end_of(working_deployment.http, await submit(working_deployment.http, TASKS))
    finally:
        sums.broken.clear()
    assert job["counts"]["failed"] == 2
    return job


async def test_a_rerun_of_failures_is_a_new_run_linked_to_the_old(
    working_deployment: Deployment, ended_job: dict[str, object]
) -> None:
    http = working_deployment.http
    filtered = {"filter": {"status": "failed", "error_code": "broken"}}
    answer = await http.post(ended_job["urls"]["rerun"], json=filtered)
    job = told(answer, 202)
    assert answer.headers["Location"] == ended_job["urls"]["poll"]
    first, second = job["runs"]
    assert (first["number"], second["number"]) == (1, 2)
    assert (first["parent_run_id"], second["parent_run_id"]) == (None, first["id"])
    assert second["filter"] == {"status": ["failed"], "error_code": ["broken"]}
    ended = await end_of(http, job)
    assert ended["status"] == "completed"
    assert (ended["counts"]["total"], ended["counts"]["succeeded"]) == (1, 1)
    (mended,) = await tasks_of(http, job)
    assert (mended["custom_id"], mended["result"]) == ("mended", {"sum": 42})
    before = await tasks_of(http, job, run=first["id"])
    assert [task["status"] for task in before] == ["succeeded", "failed", "failed"]


async def test_a_rerun_of_all_takes_every_task(
    working_deployment: Deployment, ended_job: dict[str, object]
) -> None:
    http = working_deployment.http
    job = told(await http.post(ended_job["urls"]["rerun"]), 202)
    assert job["runs"][1]["filter"] is None
    ended = await end_of(http, job)
    assert (ended["counts"]["succeeded"], ended["counts"]["failed"]) == (2, 1)
    assert [task["index"] for task in await tasks_of(http, job)] == [0, 1, 2]


async def test_a_rerun_with_a_known_key_is_run_once(
    working_deployment: Deployment, ended_job: dict[str, object]
) -> None:
    http, key = working_deployment.http, {"Idempotency-Key": "again"}
    url = ended_job["urls"]["rerun"]
    first = await http.post(url, json={"filter": {"status": ["failed"]}}, headers=key)
    again = await http.post(url, json={"filter": {"status": ["failed"]}}, headers=key)
    assert len(told(again, 202)["runs"]) == len(told(first, 202)["runs"]) == 2
    assert again.headers["Idempotent-Replayed"] == "true"
    other = await http.post(url, headers=key)
    assert other.headers["Idempotency-Mismatch"] == "true"


async def test_nothing_to_run_again_is_refused(
    working_deployment: Deployment, ended_job: dict[str, object]
) -> None:
    http, url = working_deployment.http, ended_job["urls"]["rerun"]
    for wanted in ({"status": "cancelled"}, {"error_code": "unheard_of"}):
        answer = await http.post(url, json={"filter": wanted})
        problem(answer, 409, "nothing_to_rerun")
    for wanted in ({"status": "running"}, {"status": []}, {"error_code": ""}, {"status": 1}):
        problem(await http.post(url, json={"filter": wanted}), 422, "invalid_input")
    problem(await http.post(url, json={"filters": {}}), 400, "invalid_parameter")
    assert len(told(await http.get(ended_job["urls"]["poll"]), 200)["runs"]) == 1


async def test_a_job_that_runs_is_not_run_again(deployment: Deployment) -> None:
    await know_sums(deployment)
    job = await submit(deployment.http, [{"a": 1}])
    problem(await deployment.http.post(job["urls"]["rerun"]), 409, "batch_still_runs")


async def test_cancelling_ends_what_waits_and_what_runs(working_deployment: Deployment) -> None:
    http = working_deployment.http
    gate = "cancelling"
    job = await submit(http, [{"gate": gate}] * 5, endpoint="/wait", concurrency=1)
    await gates.begun[gate].wait()
    asked = told(await http.post(job["urls"]["cancel"]), 202)
    assert asked["cancel_requested"]
    again = await http.post(job["urls"]["cancel"])
    assert again.status_code in (202, 409)
    ended = await end_of(http, job)
    assert ended["status"] == "cancelled"
    assert ended["counts"]["cancelled"] == 5
    assert not ended["cancel_requested"]
    problem(await http.post(job["urls"]["cancel"]), 409, "batch_already_ended")


async def test_a_job_that_has_ended_is_not_cancelled(
    working_deployment: Deployment, ended_job: dict[str, object]
) -> None:
    answer = await working_deployment.http.post(ended_job["urls"]["cancel"])
    problem(answer, 409, "batch_already_ended")


async def test_a_deleted_job_is_gone_and_its_key_is_free(deployment: Deployment) -> None:
    await know_sums(deployment)
    body = {"service": "sums", "endpoint": "/add", "tasks": [{"a": 1}]}
    key = {"Idempotency-Key": "free again"}
    job = told(await deployment.http.post("/v1/jobs", json=body, headers=key), 201)
    (task,) = await tasks_of(deployment.http, job)
    assert (await deployment.http.delete(job["urls"]["poll"])).status_code == 204
    for url in (job["urls"]["poll"], job["urls"]["tasks"], task["urls"]["poll"]):
        problem(await deployment.http.get(url), 404, "job_not_found")
    problem(await deployment.http.delete(job["urls"]["poll"]), 404, "job_not_found")
    assert told(await deployment.http.get("/v1/jobs"), 200)["items"] == []
    anew = told(await deployment.http.post("/v1/jobs", json=body, headers=key), 201)
    assert anew["id"] != job["id"]
