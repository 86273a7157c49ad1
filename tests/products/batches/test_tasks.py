"""Tasks: pages of them, by status; one of them, with its input, its result and its files."""

from __future__ import annotations

import pytest

from tests.deployment import Deployment
from tests.products.batches.asking import (
    end_of,
    know_sums,
    problem,
    submit,
    tasks_of,
    told,
)
from tests.products.batches.sums import gates

LONG = 70_000  # more than a page shows of one result


async def test_tasks_are_found_by_their_status(working_deployment: Deployment) -> None:
    http = working_deployment.http
    tasks = [{"a": n if n % 3 else -1} for n in range(30)]
    job = await end_of(http, await submit(http, tasks))
    failed = await tasks_of(http, job, status="failed", limit=4)
    assert [task["index"] for task in failed] == list(range(0, 30, 3))
    succeeded = await tasks_of(http, job, status="succeeded", limit=7)
    assert len(succeeded) == 20
    for status in ("pending", "running", "cancelled"):
        assert await tasks_of(http, job, status=status) == []


async def test_failures_are_counted_by_their_codes(working_deployment: Deployment) -> None:
    http = working_deployment.http
    tasks: list[dict[str, object]] = [{"a": -1}, {"a": 1}, {"a": -1}, {"a": "no number"}]
    job = await end_of(http, await submit(http, tasks))
    url = f"{job['urls']['poll']}/failures"
    shown = told(await http.get(url), 200)
    assert shown == {
        "run_id": job["runs"][0]["id"],
        "all_runs": False,
        "counted": 3,
        "items": [{"code": "negative", "count": 2}, {"code": "invalid_input", "count": 1}],
    }
    again = told(await http.post(job["urls"]["rerun"], json={"filter": {"status": "failed"}}), 202)
    await end_of(http, again)
    earlier = told(await http.get(url, params={"run": job["runs"][0]["id"]}), 200)
    assert earlier == shown
    problem(await http.get(url, params={"run": "x"}), 400, "invalid_parameter")


async def test_tasks_that_wait_and_run_are_found_too(working_deployment: Deployment) -> None:
    http, gate = working_deployment.http, "statuses"
    job = await submit(http, [{"gate": gate}] * 4, endpoint="/wait", concurrency=1)
    await gates.begun[gate].wait()
    assert len(await tasks_of(http, job, status="running")) == 1
    assert len(await tasks_of(http, job, status="pending", limit=1)) == 3
    gates.opened[gate].set()
    assert (await end_of(http, job))["counts"]["succeeded"] == 4


async def test_one_task_has_its_input_and_its_result(working_deployment: Deployment) -> None:
    http = working_deployment.http
    job = await end_of(http, await submit(http, [{"custom_id": "x", "input": {"a": 1, "b": 2}}]))
    (shown,) = await tasks_of(http, job)
    task = told(await http.get(shown["urls"]["poll"]), 200)
    assert task["input"] == {"a": 1, "b": 2}
    assert {name: task[name] for name in shown} == shown
    assert task["artifacts"] == []
    assert (await http.get(task["urls"]["result"])).json() == {"sum": 3}
    assert task["urls"]["job"] == job["urls"]["poll"]


async def test_a_result_that_is_too_long_for_a_page_is_found_at_its_url(
    working_deployment: Deployment,
) -> None:
    http = working_deployment.http
    job = await end_of(
        http, await submit(http, [{"characters": LONG}, {"characters": 3}], endpoint="/long")
    )
    long, short = await tasks_of(http, job)
    assert (long["result"], long["result_url"]) == (None, long["urls"]["result"])
    assert (short["result"], short["result_url"]) == ("xxx", None)
    assert (await http.get(long["result_url"])).json() == "x" * LONG
    whole = told(await http.get(long["urls"]["poll"]), 200)
    assert (whole["result"], whole["result_url"]) == ("x" * LONG, None)


async def test_what_a_task_has_left_is_fetched_by_a_signed_url(
    working_deployment: Deployment,
) -> None:
    http = working_deployment.http
    job = await end_of(http, await submit(http, [{"text": "left here"}], endpoint="/leave"))
    (shown,) = await tasks_of(http, job)
    (artifact,) = told(await http.get(shown["urls"]["poll"]), 200)["artifacts"]
    assert (artifact["name"], artifact["media_type"], artifact["bytes"]) == (
        "note.txt",
        "text/plain",
        9,
    )
    request = http.build_request("GET", artifact["url"])
    del request.headers["Authorization"]  # the URL is all that is needed
    assert (await http.send(request)).text == "left here"


async def test_a_task_without_a_result_has_none_to_fetch(deployment: Deployment) -> None:
    await know_sums(deployment)
    job = await submit(deployment.http, [{"a": 1}])
    (task,) = await tasks_of(deployment.http, job)
    problem(await deployment.http.get(task["urls"]["result"]), 404, "job_not_found")


async def test_a_task_of_another_job_is_not_found(deployment: Deployment) -> None:
    await know_sums(deployment)
    one, other = [await submit(deployment.http, [{"a": 1}]) for _ in range(2)]
    (task,) = await tasks_of(deployment.http, other)
    for task_id in (task["id"], "0" * 32, "not-a-task", "0" * 26):
        for url in (
            f"{one['urls']['tasks']}/{task_id}",
            f"{one['urls']['tasks']}/{task_id}/result",
        ):
            problem(await deployment.http.get(url), 404, "job_not_found")


@pytest.mark.parametrize(
    "query",
    [
        {"status": "done"},
        {"limit": "201"},
        {"cursor": "x"},
        {"run": "x"},
        {"run": "0" * 26},
        {"offset": "3"},
    ],
)
async def test_a_wrong_page_is_refused(deployment: Deployment, query: dict[str, str]) -> None:
    await know_sums(deployment)
    job = await submit(deployment.http, [{"a": 1}])
    problem(await deployment.http.get(job["urls"]["tasks"], params=query), 400, "invalid_parameter")


async def test_a_task_of_a_batch_is_no_job_of_the_gateways(deployment: Deployment) -> None:
    await know_sums(deployment)
    await submit(deployment.http, [{"a": 1}])
    page = await deployment.http.get(
        "/api/v1/orgs/default/workspaces/default/hosted-services/sums/jobs"
    )
    assert told(page, 200)["items"] == []
