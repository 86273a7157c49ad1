"""Jobs that are submitted with a delay: staged, then run; and what is refused."""

from __future__ import annotations

import pytest

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, hand_in, problem

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_delayed_job_is_staged_until_its_time_and_then_runs(shared: Deployment) -> None:
    answer = await shared.http.post(
        paths.submit("/echo"), json={"value": 1}, headers={"X-Coatcheck-Delay": "0.5"}
    )
    assert answer.status_code == 202
    ticket = answer.json()
    assert (ticket["status"], ticket["terminal"]) == ("staged", False)
    job = await end_of(shared.http, ticket)
    assert job["status"] == "completed"
    assert job["pre_dispatch_age_seconds"] >= 0.5


async def test_a_job_far_ahead_says_when_to_ask_again_and_can_be_cancelled(
    shared: Deployment,
) -> None:
    headers = {"X-Coatcheck-Delay": "3600", "Prefer": "wait=1"}
    answer = await shared.http.post(paths.submit("/echo"), json={"value": 1}, headers=headers)
    ticket = answer.json()
    assert (answer.status_code, ticket["status"]) == (202, "staged")
    assert int(answer.headers["retry-after"]) > 10
    shown = await shared.http.get(ticket["poll_url"])
    assert shown.json()["status"] == "staged"
    cancelled = await shared.http.post(ticket["cancel_url"])
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")


async def test_a_call_that_cannot_end_in_time_is_answered_at_once(shared: Deployment) -> None:
    answer = await shared.http.post(
        paths.call("/echo"), json={"value": 1}, headers={"X-Coatcheck-Delay": "86400"}
    )
    assert (answer.status_code, answer.json()["status"]) == (202, "staged")
    assert int(answer.headers["retry-after"]) > 10
    await shared.http.post(answer.json()["cancel_url"])


async def test_a_known_key_keeps_the_delay_of_its_first_submission(shared: Deployment) -> None:
    first = await hand_in(
        shared.http, "/echo", {"value": 1}, Idempotency_Key="later", X_Coatcheck_Delay="3600"
    )
    again = await hand_in(shared.http, "/echo", {"value": 1}, Idempotency_Key="later")
    assert (again["job_id"], again["status"]) == (first["job_id"], "staged")
    await shared.http.post(first["cancel_url"])


@pytest.mark.parametrize("given", ["-1", "soon", "1e3", "", "nan", "31622401", "1,5", "٣"])
async def test_what_is_no_number_of_seconds_is_refused(shared: Deployment, given: str) -> None:
    answer = await shared.http.post(
        paths.submit("/echo"), json={"value": 1}, headers={"X-Coatcheck-Delay": given.encode()}
    )
    found = problem(answer, 400, "invalid_parameter")
    assert found["details"][0]["field"] == "X-Coatcheck-Delay"


async def test_no_delay_is_a_job_that_is_queued_at_once(shared: Deployment) -> None:
    ticket = await hand_in(shared.http, "/echo", {"value": 1}, X_Coatcheck_Delay="0")
    assert ticket["status"] == "queued"
    assert (await end_of(shared.http, ticket))["status"] == "completed"
