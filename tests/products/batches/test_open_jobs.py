"""Open jobs take tasks until they are closed."""

from __future__ import annotations

from tests.deployment import Deployment
from tests.products.batches.asking import (
    NDJSON,
    end_of,
    know_sums,
    lines,
    problem,
    stage,
    submit,
    tasks_of,
    told,
)


async def test_an_open_job_begins_without_tasks_and_stays_open(deployment: Deployment) -> None:
    await know_sums(deployment)
    job = await submit(deployment.http, type="open", status=202)
    assert (job["type"], job["status"], job["terminal"]) == ("open", "open", False)
    assert job["counts"]["total"] == 0


async def test_tasks_come_in_every_way_and_the_job_completes_once_it_is_closed(
    working_deployment: Deployment,
) -> None:
    http = working_deployment.http
    job = await submit(http, [{"a": 0}], type="open", status=202)
    url = job["urls"]["tasks"]
    some = await http.post(url, json={"tasks": [{"a": 1}, {"custom_id": "x", "input": {"a": 2}}]})
    assert some.status_code == 201
    data = lines({"a": n} for n in range(3, 1_500))
    assert (await http.post(url, content=data, headers=NDJSON)).status_code == 202
    upload = await stage(http, lines([{"a": 1_500}, {"a": 1_501}]))
    staged = await http.post(url, json={"source": {"upload_id": upload}})
    assert staged.status_code == 202
    closed = told(await http.post(job["urls"]["close"]), 200)
    assert closed["status"] in ("ingesting", "running", "completed")
    ended = await end_of(http, job)
    assert ended["status"] == "completed"
    assert ended["counts"]["succeeded"] == ended["counts"]["total"] == 1_502
    tasks = await tasks_of(http, job, limit=200)
    assert sorted(task["result"]["sum"] for task in tasks) == list(range(1_502))
    assert [task["index"] for task in tasks] == list(range(1_502))


async def test_closing_again_changes_nothing(working_deployment: Deployment) -> None:
    http = working_deployment.http
    job = await submit(http, [{"a": 0}], type="open", status=202)
    told(await http.post(job["urls"]["close"]), 200)
    await end_of(http, job)
    again = told(await http.post(job["urls"]["close"]), 200)
    assert again["status"] == "completed"


async def test_a_closed_job_takes_no_more(deployment: Deployment) -> None:
    await know_sums(deployment)
    more = {"tasks": [{"a": 1}]}
    never_open = await submit(deployment.http, [{"a": 1}])
    answer = await deployment.http.post(never_open["urls"]["tasks"], json=more)
    problem(answer, 409, "batch_not_open")
    job = await submit(deployment.http, type="open", status=202)
    told(await deployment.http.post(job["urls"]["close"]), 200)
    for content in ({"json": more}, {"content": b'{"a": 1}\n', "headers": NDJSON}):
        problem(await deployment.http.post(job["urls"]["tasks"], **content), 409, "batch_not_open")


async def test_an_open_job_without_tasks_completes_when_it_is_closed(
    working_deployment: Deployment,
) -> None:
    job = await submit(working_deployment.http, type="open", status=202)
    told(await working_deployment.http.post(job["urls"]["close"]), 200)
    ended = await end_of(working_deployment.http, job)
    assert (ended["status"], ended["counts"]["total"]) == ("completed", 0)


async def test_tasks_with_a_known_key_are_added_once(deployment: Deployment) -> None:
    await know_sums(deployment)
    job = await submit(deployment.http, type="open", status=202)
    url, key = job["urls"]["tasks"], {"Idempotency-Key": "once"}
    first = await deployment.http.post(url, json={"tasks": [1]}, headers=key)
    again = await deployment.http.post(url, json={"tasks": [1]}, headers=key)
    other = await deployment.http.post(url, json={"tasks": [2]}, headers=key)
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 200)
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotency-Mismatch" not in again.headers
    assert other.headers["Idempotency-Mismatch"] == "true"
    assert other.json()["counts"]["total"] == 1
    strict = await deployment.http.post(
        url, json={"tasks": [2]}, headers=key | {"Prefer": "handling=strict"}
    )
    problem(strict, 422, "idempotency_mismatch")


async def test_nothing_to_add_is_refused(deployment: Deployment) -> None:
    await know_sums(deployment)
    job = await submit(deployment.http, type="open", status=202)
    url = job["urls"]["tasks"]
    both = {"tasks": [1], "source": {"upload_id": "0" * 26}}
    for body in ({}, {"tasks": []}, both):
        problem(await deployment.http.post(url, json=body), 422, "invalid_input")
    problem(await deployment.http.post(url, json={"task": [1]}), 400, "invalid_parameter")
    problem(await deployment.http.post(url, content=b"", headers=NDJSON), 400, "invalid_body")
