"""Waiting for a job within one request: ``Prefer: wait`` and ``?wait``."""

from __future__ import annotations

import pytest

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import hand_in, problem
from tests.products.gateway.docs_service import gates

pytestmark = pytest.mark.asyncio(loop_scope="module")

APPLIED = "preference-applied"


async def test_the_query_asks_for_the_same(shared: Deployment) -> None:
    answer = await shared.http.post(
        paths.submit("/analyze"), json={"content": "a"}, params={"wait": "30"}
    )
    assert (answer.status_code, answer.json()["status"]) == (200, "completed")
    assert APPLIED not in answer.headers


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
