"""Lists that could not be taken in: listed, and taken in after all."""

from __future__ import annotations

from typing import Any

from coatcheck.domain.tenants import Scope
from tests.deployment import Deployment, bearer
from tests.products.batches.asking import (
    end_of,
    problem,
    stage,
    submit,
    told,
)

DLQ = "/v1/dlq"


async def failed_job(deployment: Deployment) -> dict[str, Any]:
    """A job whose staged list has no task in it."""
    upload = await stage(deployment.http, b"not a task\n")
    job = await submit(deployment.http, status=202, source={"upload_id": upload})
    ended = await end_of(deployment.http, job)
    assert ended["status"] == "failed_ingest"
    return ended


async def test_a_list_that_failed_is_a_dead_letter(working_deployment: Deployment) -> None:
    job = await failed_job(working_deployment)
    (letter,) = told(await working_deployment.http.get(DLQ), 200)["items"]
    assert (letter["job_id"], letter["run_id"]) == (job["id"], job["runs"][0]["id"])
    assert letter["error"] == job["ingest"]["error"]
    assert letter["urls"]["job"] == job["urls"]["poll"]
    assert (letter["source"], letter["redrives"]) == ("upload", 0)


async def test_a_redriven_list_is_tried_again(working_deployment: Deployment) -> None:
    http = working_deployment.http
    job = await failed_job(working_deployment)
    (letter,) = told(await http.get(DLQ), 200)["items"]
    answer = await http.post(letter["urls"]["redrive"])
    assert told(answer, 202)["redrives"] == 1
    assert answer.headers["Location"] == job["urls"]["poll"]
    assert (await end_of(http, job))["status"] == "failed_ingest"
    (again,) = told(await http.get(DLQ), 200)["items"]
    assert (again["id"], again["redrives"]) == (letter["id"], 1)


async def test_a_deleted_job_leaves_no_dead_letter(working_deployment: Deployment) -> None:
    job = await failed_job(working_deployment)
    assert (await working_deployment.http.delete(job["urls"]["poll"])).status_code == 204
    assert told(await working_deployment.http.get(DLQ), 200)["items"] == []


async def test_a_job_that_failed_to_be_taken_in_can_be_cancelled(
    working_deployment: Deployment,
) -> None:
    job = await failed_job(working_deployment)
    answer = await working_deployment.http.post(job["urls"]["cancel"])
    assert answer.status_code in (200, 202)


async def test_somebody_elses_dead_letter_is_as_good_as_none(
    working_deployment: Deployment,
) -> None:
    http = working_deployment.http
    await failed_job(working_deployment)
    (letter,) = told(await http.get(DLQ), 200)["items"]
    await working_deployment.create_org("other")
    scopes = {Scope.READ, Scope.SUBMIT}
    for key in (
        await working_deployment.create_key(user="colleague", scopes=scopes),
        await working_deployment.create_key("other"),
    ):
        assert told(await http.get(DLQ, headers=bearer(key)), 200)["items"] == []
        for url in (letter["urls"]["redrive"], f"{DLQ}/{'0' * 26}/redrive", f"{DLQ}/x/redrive"):
            problem(await http.post(url, headers=bearer(key)), 404, "not_found")
