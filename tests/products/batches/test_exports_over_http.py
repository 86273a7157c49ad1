"""Exports: asked for, waited for, fetched by a signed URL."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from typing import Any

from tests.deployment import Deployment
from tests.products.batches.asking import end_of, know_sums, problem, submit, told
from tests.waiting import eventually_async


async def written(deployment: Deployment, export: dict[str, Any]) -> dict[str, Any]:
    """The export once it was written."""

    async def look() -> dict[str, Any] | None:
        found = told(await deployment.http.get(export["urls"]["poll"]), 200)
        return found if found["terminal"] else None

    found: dict[str, Any] = await eventually_async(look, "the export is written")
    return found


async def test_an_export_holds_every_result_and_its_checksum_is_true(
    working_deployment: Deployment,
) -> None:
    http = working_deployment.http
    job = await end_of(http, await submit(http, [{"a": 1}, {"a": 2}, {"a": -1}]))
    answer = await http.post(job["urls"]["exports"])
    asked = told(answer, 202)
    assert answer.headers["Location"] == asked["urls"]["poll"]
    assert (asked["job_id"], asked["run_id"]) == (job["id"], job["runs"][0]["id"])
    export = await written(working_deployment, asked)
    assert (export["status"], export["error"]) == ("completed", None)
    assert export["expires_at"] > export["completed_at"]
    request = http.build_request("GET", export["url"])
    del request.headers["Authorization"]
    fetched = (await http.send(request)).content
    assert (len(fetched), hashlib.sha256(fetched).hexdigest()) == (
        export["bytes"],
        export["sha256"],
    )
    with zipfile.ZipFile(io.BytesIO(fetched)) as archive:
        results = [json.loads(line) for line in archive.read("results.ndjson").splitlines()]
        errors = [json.loads(line) for line in archive.read("errors.ndjson").splitlines()]
    assert [line["result"] for line in results] == [{"sum": 1}, {"sum": 2}]
    assert [line["error"]["code"] for line in errors] == ["negative"]
    listed = told(await http.get(job["urls"]["exports"]), 200)["items"]
    assert [each["id"] for each in listed] == [export["id"]]


async def test_an_export_may_be_of_an_earlier_run(working_deployment: Deployment) -> None:
    http = working_deployment.http
    job = await end_of(http, await submit(http, [{"a": 1}]))
    first = job["runs"][0]["id"]
    await end_of(http, told(await http.post(job["urls"]["rerun"]), 202))
    asked = told(await http.post(job["urls"]["exports"], json={"run": first}), 202)
    assert asked["run_id"] == first
    assert (await written(working_deployment, asked))["status"] == "completed"


async def test_what_is_no_export_is_not_found_and_no_run_is_refused(deployment: Deployment) -> None:
    await know_sums(deployment)
    job = await submit(deployment.http, [{"a": 1}])
    url = job["urls"]["exports"]
    for export_id in ("0" * 26, "x", "0" * 32):
        problem(await deployment.http.get(f"{url}/{export_id}"), 404, "job_not_found")
    problem(await deployment.http.post(url, json={"run": "0" * 26}), 400, "invalid_parameter")
    problem(await deployment.http.post(url, json={"run": 1}), 422, "invalid_input")
    problem(await deployment.http.post(url, json={"runs": []}), 400, "invalid_parameter")
