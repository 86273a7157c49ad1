"""Calling an endpoint and waiting for its result: a job whose answer is held."""

from __future__ import annotations

import asyncio

import pytest

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, problem
from tests.products.gateway.docs_service import gates

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_answer_is_the_result_itself(shared: Deployment) -> None:
    answer = await shared.http.post(paths.call("/analyze"), json={"content": "a b"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {"result": {"entities": ["a", "b"]}, "confidence": 0.95}


async def test_the_answer_names_its_job(shared: Deployment) -> None:
    answer = await shared.http.post(paths.call("/echo"), json={"value": 1})
    assert "location" not in answer.headers
    job = (await shared.http.get(answer.links["job"]["url"])).json()
    assert (job["status"], job["result_summary"]) == ("completed", 1)


async def test_a_result_of_nothing_is_null(shared: Deployment) -> None:
    answer = await shared.http.post(paths.call("/unhurried"), json={})
    assert (answer.status_code, answer.content) == (200, b"null")


async def test_every_method_reaches_its_endpoint(shared: Deployment) -> None:
    put = await shared.http.put(paths.call("/items/5"), json={"status": "done"})
    assert put.json() == {"item": 5, "status": "done"}
    get = await shared.http.get(paths.call("/items/5"))
    assert get.json() == {"item": 5, "deep": False}
    versioned = await shared.http.get(paths.call("/items/5", version=1))
    assert versioned.json() == get.json()


async def test_a_head_request_is_a_get_without_its_body(shared: Deployment) -> None:
    answer = await shared.http.head(paths.call("/items/5"))
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) == len(b'{"item":5,"deep":false}')


async def test_input_that_does_not_fit_is_422(shared: Deployment) -> None:
    for body in ({"content": 5}, {}, {"content": "a", "extra": 1}, ["content"]):
        answer = await shared.http.post(paths.call("/analyze"), json=body)
        problem(answer, 422, "invalid_input")


async def test_a_failure_is_502_with_its_own_code_and_its_job(shared: Deployment) -> None:
    answer = await shared.http.post(paths.call("/fail"), json={"reason": "no ink"})
    found = problem(answer, 502, "asked_to_fail")
    assert found["detail"] == "no ink"
    job = (await shared.http.get(answer.headers["location"])).json()
    assert (job["status"], job["last_error"]["code"]) == ("failed", "asked_to_fail")


async def test_a_job_whose_retries_are_used_up_is_502(shared: Deployment) -> None:
    answer = await shared.http.post(paths.call("/flaky"), json={})
    problem(answer, 502, "max_retries_exhausted")


async def test_a_cancelled_call_is_409(shared: Deployment, gate: str) -> None:
    calling = asyncio.create_task(
        shared.http.post(paths.call("/deaf"), json={"gate": gate}, headers={"Prefer": "wait=30"})
    )
    await gates.begun[gate].wait()
    (job, *_) = (await shared.http.get(paths.jobs(), params={"limit": 1})).json()["items"]
    await shared.http.post(paths.job(job["id"]) + "/cancel")
    gates.opened[gate].set()
    answer = await calling
    ended = (await shared.http.get(paths.job(job["id"]))).json()
    if ended["status"] == "cancelled":
        problem(answer, 409, "cancelled")
    else:  # it won
        assert answer.json() == "done all the same"


async def test_a_call_that_takes_too_long_becomes_a_ticket_to_collect_later(
    shared: Deployment, gate: str
) -> None:
    answer = await shared.http.post(paths.call("/held"), json={"gate": gate})
    assert answer.status_code == 202
    ticket = answer.json()
    assert answer.headers["location"] == ticket["poll_url"]
    assert int(answer.headers["retry-after"]) >= 1
    assert ticket["status"] in ("queued", "dispatching", "processing")
    gates.opened[gate].set()
    assert (await end_of(shared.http, ticket))["result_summary"] == "let through"


async def test_a_caller_may_wait_for_less_long(shared: Deployment, gate: str) -> None:
    answer = await shared.http.post(
        paths.call("/deaf"), json={"gate": gate}, headers={"Prefer": "wait=0.05"}
    )
    gates.opened[gate].set()
    assert (answer.status_code, answer.headers["preference-applied"]) == (202, "wait=0.05")


async def test_a_caller_may_not_wait_at_all(shared: Deployment) -> None:
    answer = await shared.http.post(
        paths.call("/echo"), json={"value": 1}, headers={"Prefer": "respond-async"}
    )
    assert (answer.status_code, answer.headers["preference-applied"]) == (202, "respond-async")
    assert (await end_of(shared.http, answer.json()))["result_summary"] == 1


async def test_a_caller_may_wait_and_take_a_ticket_only_then(shared: Deployment, gate: str) -> None:
    prefer = {"Prefer": "respond-async, wait=30"}
    answer = await shared.http.post(paths.call("/echo"), json={"value": 1}, headers=prefer)
    assert (answer.status_code, answer.json()) == (200, 1)
    assert answer.headers["preference-applied"] == "respond-async, wait=30"
    answer = await shared.http.post(paths.call("/held"), json={"gate": gate}, headers=prefer)
    gates.opened[gate].set()
    assert answer.status_code == 202


async def test_an_endpoint_named_like_a_route_of_ours_is_not_reached(shared: Deployment) -> None:
    answer = await shared.http.get(paths.submit("/analyze"))
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"
