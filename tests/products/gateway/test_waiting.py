"""Waiting for a job within one request: ``Prefer: wait`` and ``?wait``."""

from __future__ import annotations

import asyncio

import pytest

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import hand_in, problem
from tests.products.gateway.docs_service import gates

pytestmark = pytest.mark.asyncio(loop_scope="module")

APPLIED = "preference-applied"


async def test_a_submit_that_waits_answers_the_whole_job(shared: Deployment) -> None:
    answer = await shared.http.post(
        paths.submit("/analyze"), json={"content": "a b"}, headers={"Prefer": "wait=30"}
    )
    assert answer.status_code == 200
    job = answer.json()
    assert (job["status"], job["terminal"]) == ("completed", True)
    assert job["result_summary"]["result"] == {"entities": ["a", "b"]}
    assert answer.headers[APPLIED] == "wait=30"
    assert answer.headers["location"] == paths.job(job["id"])
    assert answer.headers["etag"] == (await shared.http.get(paths.job(job["id"]))).headers["etag"]
    assert "retry-after" not in answer.headers


async def test_the_query_asks_for_the_same(shared: Deployment) -> None:
    answer = await shared.http.post(
        paths.submit("/analyze"), json={"content": "a"}, params={"wait": "30"}
    )
    assert (answer.status_code, answer.json()["status"]) == (200, "completed")
    assert APPLIED not in answer.headers


async def test_a_submit_whose_time_is_up_answers_the_ticket(shared: Deployment, gate: str) -> None:
    answer = await shared.http.post(
        paths.submit("/held"), json={"gate": gate}, headers={"Prefer": "wait=0.1"}
    )
    gates.opened[gate].set()
    assert answer.status_code == 202
    assert answer.headers[APPLIED] == "wait=0.1"
    assert int(answer.headers["retry-after"]) >= 1
    ticket = answer.json()
    assert ticket["terminal"] is False
    assert "result_summary" not in ticket


async def test_the_ticket_after_a_wait_shows_the_state_after_the_wait(
    shared: Deployment, gate: str
) -> None:
    body = {"gate": gate}
    await hand_in(shared.http, "/held", body, Idempotency_Key=gate[-40:])
    await gates.begun[gate].wait()
    answer = await shared.http.post(
        paths.submit("/held"),
        json=body,
        params={"wait": "0"},
        headers={"Idempotency-Key": gate[-40:]},
    )
    gates.opened[gate].set()
    assert answer.status_code == 202
    assert answer.json()["status"] in ("dispatching", "processing")


async def test_a_status_read_that_waits_answers_when_the_job_has_ended(
    shared: Deployment, gate: str
) -> None:
    ticket = await hand_in(shared.http, "/held", {"gate": gate})
    await gates.begun[gate].wait()
    asked = asyncio.create_task(shared.http.get(ticket["poll_url"], headers={"Prefer": "wait=30"}))
    plain = await shared.http.get(ticket["poll_url"])
    assert (plain.status_code, plain.json()["terminal"]) == (200, False)
    gates.opened[gate].set()
    answer = await asked
    assert (answer.status_code, answer.json()["result_summary"]) == (200, "let through")
    assert answer.headers[APPLIED] == "wait=30"


async def test_a_status_read_whose_time_is_up_answers_202(shared: Deployment, gate: str) -> None:
    ticket = await hand_in(shared.http, "/held", {"gate": gate})
    for options in ({"params": {"wait": "0.05"}}, {"headers": {"Prefer": "wait=0"}}):
        answer = await shared.http.get(ticket["poll_url"], **options)
        assert answer.status_code == 202
        assert (answer.json()["terminal"], answer.json()["result_summary"]) == (False, None)
        assert int(answer.headers["retry-after"]) >= 1
    gates.opened[gate].set()


async def test_a_failed_job_ends_the_wait_too(shared: Deployment) -> None:
    answer = await shared.http.post(paths.submit("/fail"), json={}, headers={"Prefer": "wait=30"})
    assert (answer.status_code, answer.json()["status"]) == (200, "failed")


@pytest.mark.parametrize("given", ["61", "3600", "60.5"])
async def test_a_longer_wait_is_cut_to_60_seconds(shared: Deployment, given: str) -> None:
    answer = await shared.http.post(
        paths.submit("/process"), json={}, headers={"Prefer": f"wait={given}"}
    )
    assert (answer.status_code, answer.headers[APPLIED]) == (200, "wait=60")
    answer = await shared.http.post(paths.submit("/process"), json={}, params={"wait": given})
    assert answer.status_code == 200


@pytest.mark.parametrize("given", ["", "-1", "soon", "nan", "1,5"])
async def test_a_wait_that_is_no_number_is_refused_in_the_query(
    shared: Deployment, given: str
) -> None:
    answer = await shared.http.post(paths.submit("/process"), json={}, params={"wait": given})
    found = problem(answer, 400, "invalid_parameter")
    assert [(each["field"], each["location"]) for each in found["details"]] == [("wait", "query")]


@pytest.mark.parametrize("given", ["wait=soon", "wait", "wait=-1", "something-else", ""])
async def test_a_preference_that_is_not_understood_is_passed_over(
    shared: Deployment, given: str
) -> None:
    answer = await shared.http.post(paths.submit("/process"), json={}, headers={"Prefer": given})
    assert answer.status_code == 202
    assert APPLIED not in answer.headers


async def test_the_wait_is_not_part_of_the_input(shared: Deployment) -> None:
    answer = await shared.http.post(
        paths.submit("/search"),
        params={"wait": "30", "text": "x"},
        headers={"X-HSL-Target-Method": "GET"},
    )
    assert answer.json()["result_summary"]["text"] == "x"
