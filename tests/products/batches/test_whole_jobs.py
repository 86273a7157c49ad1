"""A job as a whole, over all its runs: each task once, with its latest result."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable
from typing import Any

import pytest

from coatcheck.domain.ids import from_text
from tests.deployment import Deployment
from tests.products.batches import sums
from tests.products.batches.asking import (
    JOBS,
    end_of,
    know_sums,
    problem,
    submit,
    submit_list,
    tasks_of,
    told,
)
from tests.products.batches.recount import counters_equal_recounts
from tests.products.batches.test_exports_over_http import written
from tests.waiting import eventually_async

Body = dict[str, Any]

TASKS = [{"a": 0}, {"a": 1}, {"a": 41, "b": 1}, {"a": -1}, {"a": 42}, {"a": 5}]
"""41 and 42 are broken at first, -1 fails for good."""


@pytest.fixture
async def job(working_deployment: Deployment) -> Body:
    """A job that has ended with three failures: two with the code ``broken``, one ``negative``."""
    sums.broken.update({41, 42})
    try:
        return await end_of(working_deployment.http, await submit(working_deployment.http, TASKS))
    finally:
        sums.broken.clear()


async def rerun(
    deployment: Deployment, job: Body, *, broken: Iterable[int] = (), **body: Any
) -> Body:
    """A run more, once it has ended; its counters are recounted."""
    sums.broken.update(broken)
    try:
        asked = told(await deployment.http.post(job["urls"]["rerun"], json=body), 202)
        ended = await end_of(deployment.http, asked)
    finally:
        sums.broken.clear()
    await counters_equal_recounts(deployment.settings.database_url, "default", from_text(job["id"]))
    return ended


def ends(counts: Body) -> tuple[int, int, int]:
    return counts["total"], counts["succeeded"], counts["failed"]


async def latest(deployment: Deployment, job: Body, **query: Any) -> list[tuple[int, str]]:
    found = await tasks_of(deployment.http, job, run="all", **query)
    return [(task["job_index"], task["status"]) for task in found]


async def test_before_any_rerun_a_job_is_what_its_run_is(
    working_deployment: Deployment, job: Body
) -> None:
    assert job["job_counts"] == job["counts"]
    found = await tasks_of(working_deployment.http, job, run="all")
    assert found == await tasks_of(working_deployment.http, job)
    assert [task["job_index"] for task in found] == [task["index"] for task in found]


async def test_counts_lists_and_failures_tell_of_the_latest_results_or_of_one_run(
    working_deployment: Deployment, job: Body
) -> None:
    http = working_deployment.http
    again = await rerun(working_deployment, job, filter={"error_code": "broken"}, broken={42})
    assert ends(again["counts"]) == (2, 1, 1)
    assert ends(again["job_counts"]) == (6, 4, 2)
    assert [ends(run["counts"]) for run in again["runs"]] == [(6, 3, 3), (2, 1, 1)]

    whole = await tasks_of(http, job, run="all")
    assert [task["job_index"] for task in whole] == [0, 1, 2, 3, 4, 5]
    assert [task["result"] for task in whole[:3]] == [{"sum": 0}, {"sum": 1}, {"sum": 42}]
    first, second = (run["id"] for run in again["runs"])
    assert [task["run_id"] for task in whole] == [first, first, second, first, second, first]
    assert await latest(working_deployment, job, limit=1) == [
        (task["job_index"], task["status"]) for task in whole
    ], "page by page"
    assert await latest(working_deployment, job, status="failed") == [(4, "failed"), (3, "failed")]
    assert len(await latest(working_deployment, job, status="succeeded", limit=1)) == 4
    assert await latest(working_deployment, job, status="running") == []
    assert await latest(working_deployment, job, status="pending") == []

    url = f"{job['urls']['poll']}/failures"
    of_all = told(await http.get(url, params={"run": "all"}), 200)
    assert (of_all["all_runs"], of_all["counted"]) == (True, 2)
    assert {item["code"]: item["count"] for item in of_all["items"]} == {"broken": 1, "negative": 1}
    of_run = told(await http.get(url, params={"run": first}), 200)
    assert (of_run["all_runs"], of_run["counted"]) == (False, 3)

    (listed,) = told(await http.get(JOBS), 200)["items"]
    assert listed["job_counts"] == again["job_counts"], "a list says the same"
    assert listed["counts"] == again["counts"]


async def test_a_rerun_without_a_filter_repeats_the_whole_job(
    working_deployment: Deployment, job: Body
) -> None:
    """After a rerun of a few it would be those few, if it took the tasks of the current run."""
    await rerun(working_deployment, job, filter={"error_code": "broken"})
    again = await rerun(working_deployment, job)
    assert ends(again["counts"]) == ends(again["job_counts"]) == (6, 5, 1)
    run = again["runs"][-1]
    assert (run["repeats_all"], run["filter"]) == (True, None)
    tasks = await tasks_of(working_deployment.http, job)
    assert [(task["index"], task["job_index"]) for task in tasks] == [(n, n) for n in range(6)]
    assert await latest(working_deployment, job, status="failed") == [(3, "failed")]


async def test_a_rerun_takes_from_the_run_that_it_is_told(
    working_deployment: Deployment, job: Body
) -> None:
    first = job["runs"][0]["id"]
    await rerun(working_deployment, job, filter={"error_code": "broken"})

    chosen = await rerun(
        working_deployment, job, run=first, filter={"status": "failed"}, broken={41}
    )
    run = chosen["runs"][-1]
    assert (run["parent_run_id"], run["repeats_all"]) == (first, False)
    assert ends(chosen["counts"]) == (3, 1, 2), "41 is broken again, -1 stays so"
    assert ends(chosen["job_counts"]) == (6, 4, 2)
    tasks = await tasks_of(working_deployment.http, job)
    assert [task["job_index"] for task in tasks] == [2, 3, 4]

    second = chosen["runs"][1]["id"]
    all_of_it = await rerun(working_deployment, job, run=second)
    assert ends(all_of_it["counts"]) == (2, 2, 0)
    assert ends(all_of_it["job_counts"]) == (6, 5, 1)


async def test_a_filter_of_all_runs_chooses_by_the_latest_results(
    working_deployment: Deployment, job: Body
) -> None:
    await rerun(working_deployment, job, filter={"error_code": "broken"}, broken={42})
    of_all = await rerun(working_deployment, job, run="all", filter={"status": "failed"})
    assert ends(of_all["counts"]) == (2, 1, 1), "-1 of the first run, and 42 of the second"
    assert ends(of_all["job_counts"]) == (6, 5, 1)
    url = job["urls"]["rerun"]
    broken = {"run": "all", "filter": {"error_code": "broken"}}
    problem(await working_deployment.http.post(url, json=broken), 409, "nothing_to_rerun")
    old = {"run": job["runs"][0]["id"], "filter": {"error_code": "broken"}}
    assert ends((await rerun(working_deployment, job, **old))["counts"]) == (2, 2, 0)


async def test_an_export_of_all_runs_has_each_task_once_with_its_latest_result(
    working_deployment: Deployment, job: Body
) -> None:
    http = working_deployment.http
    await rerun(working_deployment, job, filter={"error_code": "broken"}, broken={42})
    last = await rerun(working_deployment, job, filter={"error_code": "broken"})
    asked = told(await http.post(job["urls"]["exports"], json={"run": "all"}), 202)
    assert (asked["all_runs"], asked["run_id"]) == (True, last["runs"][-1]["id"])
    export = await written(working_deployment, asked)
    assert (export["status"], export["tasks"]) == ("completed", 6)
    with zipfile.ZipFile(io.BytesIO((await http.get(export["url"])).content)) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        results = [json.loads(line) for line in archive.read("results.ndjson").splitlines()]
        errors = [json.loads(line) for line in archive.read("errors.ndjson").splitlines()]
    assert (manifest["all_runs"], manifest["complete"]) == (True, True)
    assert manifest["counts"] == {"total": 6, "succeeded": 5, "failed": 1, "cancelled": 0}
    by_index = {line["job_index"]: line["result"]["sum"] for line in results}
    assert by_index == {0: 0, 1: 1, 2: 42, 4: 42, 5: 5}
    assert len(results) == 5, "none is there twice"
    assert [line["job_index"] for line in errors] == [3]
    runs = {run["number"]: run["id"] for run in last["runs"]}
    assert {line["job_index"]: line["run_id"] for line in results} == {
        0: runs[1], 1: runs[1], 2: runs[2], 4: runs[3], 5: runs[1],
    }  # fmt: skip


async def test_while_a_rerun_goes_on_the_rest_keeps_its_results(deployment: Deployment) -> None:
    await deployment.start_batches_worker()
    deployment.start_maintenance()
    worker = await deployment.start_worker(sums.sums)
    sums.broken.add(41)
    try:
        job = await end_of(deployment.http, await submit(deployment.http, TASKS))
    finally:
        sums.broken.clear()
    await deployment.stop_worker(worker)
    asked = told(await deployment.http.post(job["urls"]["rerun"], json={"filter": FAILED}), 202)

    async def taken_in() -> Body | None:
        now = told(await deployment.http.get(job["urls"]["poll"]), 200)
        return now if now["status"] == "running" else None

    now = await eventually_async(taken_in, "the tasks of the rerun are there")
    assert (now["counts"]["pending"], now["counts"]["total"]) == (2, 2)
    whole = now["job_counts"]
    assert (whole["total"], whole["succeeded"], whole["failed"], whole["pending"]) == (6, 4, 0, 2)
    waiting = await latest(deployment, job, status="pending")
    assert sorted(waiting) == [(2, "pending"), (3, "pending")], "in the order of the queue"
    assert await latest(deployment, job, status="failed") == []
    assert asked["job_counts"]["total"] == 6
    await counters_equal_recounts(deployment.settings.database_url, "default", from_text(job["id"]))


FAILED = {"status": "failed"}


async def test_of_a_long_list_a_status_is_walked_in_bounded_steps(
    working_deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages may be short, and not be the last; nothing is left out and nothing comes twice."""
    monkeypatch.setattr("coatcheck.products.batches.task_repository.SCANNED_MAX", 4)
    monkeypatch.setattr("coatcheck.products.batches.task_repository.SCANNED_STEP", 2)
    http = working_deployment.http
    numbers = [*range(1, 15), -1, -2]
    body = b"".join(b'{"a": %d}\n' % n for n in numbers)
    sums.broken.update(range(1, 13))
    try:
        job = await end_of(http, await submit_list(http, body))
    finally:
        sums.broken.clear()
    await rerun(working_deployment, job, filter={"error_code": "broken"}, broken={3, 9})
    assert sorted(await latest(working_deployment, job, status="failed")) == [
        (2, "failed"), (8, "failed"), (14, "failed"), (15, "failed"),
    ]  # fmt: skip
    assert len(await latest(working_deployment, job, status="succeeded", limit=3)) == 12
    first = told(
        await http.get(job["urls"]["tasks"], params={"run": "all", "status": "failed", "limit": 1}),
        200,
    )
    assert first["next"] is not None


async def test_what_is_no_run_of_the_job_is_refused(deployment: Deployment) -> None:
    await know_sums(deployment)
    job, other = (
        await submit(deployment.http, [{"a": 1}]),
        await submit(deployment.http, [{"a": 1}]),
    )
    foreign = other["runs"][0]["id"]
    for url in (job["urls"]["tasks"], f"{job['urls']['poll']}/failures"):
        for run in (foreign, "none", "ALL"):
            problem(await deployment.http.get(url, params={"run": run}), 400, "invalid_parameter")
    for name in ("rerun", "exports"):
        answer = await deployment.http.post(job["urls"][name], json={"run": foreign})
        problem(answer, 400, "invalid_parameter")
        problem(
            await deployment.http.post(job["urls"][name], json={"run": "ALL"}), 422, "invalid_input"
        )


async def test_a_cursor_belongs_to_the_list_that_gave_it(
    working_deployment: Deployment, job: Body
) -> None:
    http, url = working_deployment.http, job["urls"]["tasks"]
    by_status = {"run": "all", "status": "succeeded", "limit": 1}
    cursor = told(await http.get(url, params=by_status), 200)["next"]
    for query in ({}, {"run": "all"}, {"status": "pending"}, {"status": "failed"}):
        answer = await http.get(url, params={**query, "cursor": cursor})
        problem(answer, 400, "invalid_parameter")
    by_position = told(await http.get(url, params={"run": "all", "limit": 1}), 200)["next"]
    wrong = {**by_status, "cursor": by_position}
    problem(await http.get(url, params=wrong), 400, "invalid_parameter")
