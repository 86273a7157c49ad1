"""Small closed jobs: 201, and the tasks are there."""

from __future__ import annotations

import hashlib

from tests.deployment import Deployment
from tests.products.batches.asking import (
    end_of,
    know_sums,
    lines,
    submit,
    submit_list,
    tasks_of,
    told,
)
from tests.products.batches.sums import sums, sums_v2


async def test_the_tasks_of_a_small_job_can_be_read_at_once(deployment: Deployment) -> None:
    await know_sums(deployment)
    answer = await deployment.http.post(
        "/v1/jobs", json={"service": "sums", "endpoint": "/add", "tasks": [{"a": 1}, {"a": 2}]}
    )
    job = told(answer, 201)
    assert answer.headers["Location"] == job["urls"]["poll"] == f"/v1/jobs/{job['id']}"
    assert job["status"] == "running"
    assert job["type"] == "closed"
    assert not job["terminal"]
    assert job["counts"] == {
        "total": 2,
        "pending": 2,
        "running": 0,
        "succeeded": 0,
        "failed": 0,
        "cancelled": 0,
    }
    assert job["ingest"] == {"lines": 2, "bad_lines": 0, "error": None}
    tasks = await tasks_of(deployment.http, job)
    assert [task["index"] for task in tasks] == [0, 1]
    assert {task["status"] for task in tasks} == {"pending"}


async def test_a_task_is_named_by_the_hash_of_its_run_and_number(deployment: Deployment) -> None:
    await know_sums(deployment)
    job = await submit(deployment.http, [{"a": 1}, {"a": 2}])
    run = job["runs"][0]["id"]
    for task in await tasks_of(deployment.http, job):
        said = f"{run}:{task['index']}".encode()
        assert task["id"] == hashlib.sha256(said).hexdigest()[:32]
        assert task["run_id"] == run


async def test_a_job_completes_when_every_task_has_ended_whatever_its_end(
    working_deployment: Deployment,
) -> None:
    http = working_deployment.http
    job = await end_of(http, await submit(http, [{"a": 1, "b": 2}, {"a": -1}, {"wrong": 1}]))
    assert (job["status"], job["terminal"], job["progress"]) == ("completed", True, 1.0)
    assert (job["counts"]["succeeded"], job["counts"]["failed"]) == (1, 2)
    assert job["completed_at"] is not None
    assert job["expires_at"] > job["completed_at"]
    done, refused, wrong = await tasks_of(http, job)
    assert (done["status"], done["result"], done["error"]) == ("succeeded", {"sum": 3}, None)
    assert (refused["status"], refused["result"]) == ("failed", None)
    assert refused["error"] == {
        "code": "negative",
        "message": "a is negative",
        "cause": "negative",
    }
    assert wrong["error"]["code"] == "invalid_input"
    assert all(task["terminal"] and task["attempts"] == 1 for task in (done, refused, wrong))


async def test_tasks_may_have_ids_of_the_callers_own(working_deployment: Deployment) -> None:
    http = working_deployment.http
    named = {"custom_id": "mine", "input": {"a": 1}}
    job = await end_of(http, await submit(http, [named, {"a": 2}]))
    first, second = await tasks_of(http, job)
    assert (first["custom_id"], first["result"]) == ("mine", {"sum": 1})
    assert (second["custom_id"], second["result"]) == (None, {"sum": 2})


async def test_a_short_list_takes_the_same_way(working_deployment: Deployment) -> None:
    http = working_deployment.http
    job = await submit_list(http, lines([{"a": 1}, {"custom_id": "x", "input": {"a": 2}}]))
    assert job["counts"]["total"] == 2
    ended = await end_of(http, job)
    assert ended["counts"]["succeeded"] == 2


async def test_a_task_is_kept_as_it_was_written(deployment: Deployment) -> None:
    await know_sums(deployment)
    written = (
        b'{"service":"sums","endpoint":"/add","tasks":[{"a": 1.0,\n "b":12345678901234567890123}]}'
    )
    answer = await deployment.http.post(
        "/v1/jobs", content=written, headers={"Content-Type": "application/json"}
    )
    job = told(answer, 201)
    (task,) = await tasks_of(deployment.http, job)
    shown = await deployment.http.get(task["urls"]["poll"])
    assert b'"input":{"a": 1.0,  "b":12345678901234567890123}' in shown.content


async def test_an_endpoint_is_named_by_its_path_or_its_key(deployment: Deployment) -> None:
    await know_sums(deployment)
    for name in ("/add", "add", "post__add"):
        job = await submit(deployment.http, [{"a": 1}], endpoint=name)
        assert job["endpoint"] == name


async def test_the_latest_version_does_the_tasks_unless_another_is_named(
    deployment: Deployment,
) -> None:
    await deployment.start_worker(sums, sums_v2)
    deployment.start_maintenance()
    latest = await end_of(deployment.http, await submit(deployment.http, [{"a": 1}]))
    first = await end_of(deployment.http, await submit(deployment.http, [{"a": 1}], version=1))
    (new,), (old,) = await tasks_of(deployment.http, latest), await tasks_of(deployment.http, first)
    assert (new["result"], old["result"]) == ({"sum": 1, "version": 2}, {"sum": 1})


async def test_options_are_shown_as_they_count(deployment: Deployment) -> None:
    await know_sums(deployment)
    job = await submit(
        deployment.http,
        [{"a": 1}],
        lane="urgent",
        concurrency=3,
        rate={"per_second": 5, "key": "a", "key_per_second": 0.5},
        metadata={"order": 7, "nested": {"x": [1.0]}},
        webhook_url="https://127.0.0.1/hook",
    )
    assert (job["lane"], job["concurrency"]) == ("urgent", 3)
    assert job["rate"] == {"per_second": 5.0, "key": "a", "key_per_second": 0.5}
    assert job["metadata"] == {"order": 7, "nested": {"x": [1.0]}}
    assert job["webhook_events"] == ["completed"]
    plain = await submit(deployment.http, [{"a": 1}])
    assert (plain["lane"], plain["rate"], plain["metadata"]) == ("bulk", None, None)


async def test_a_rate_with_a_key_and_one_number_counts_for_each_key(deployment: Deployment) -> None:
    await know_sums(deployment)
    job = await submit(deployment.http, [{"a": 1}], rate={"per_second": 5, "key": "a"})
    assert job["rate"] == {"per_second": None, "key": "a", "key_per_second": 5.0}


async def test_the_threshold_is_a_setting_and_async_goes_past_it(deployment: Deployment) -> None:
    await know_sums(deployment)
    tasks = [{"a": 1}] * 999
    assert (await submit(deployment.http, tasks))["counts"]["total"] == 999
    large = await submit(deployment.http, [*tasks, {"a": 1}], status=202)
    assert (large["status"], large["counts"]["total"]) == ("ingesting", 0)
    by_choice = await submit(deployment.http, [{"a": 1}], status=202, **{"async": True})
    assert by_choice["status"] == "ingesting"
