"""Asking for a job's end."""

from __future__ import annotations

import pytest

from tests.deployment import Deployment
from tests.products.gateway.asking import end_of, hand_in, problem
from tests.products.gateway.docs_service import gates

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_running_job_is_told_to_stop_and_then_is_cancelled(
    shared: Deployment, gate: str
) -> None:
    ticket = await hand_in(shared.http, "/linger", {"gate": gate})
    await gates.begun[gate].wait()
    gates.opened[gate].set()
    answer = await shared.http.post(ticket["cancel_url"])
    assert answer.status_code == 202
    assert (answer.json()["status"], answer.json()["terminal"]) == ("cancel_requested", False)
    gates.opened[f"{gate}: end"].set()
    job = await end_of(shared.http, ticket)
    assert (job["status"], job["result_summary"]) == ("cancelled", None)


async def test_cancelling_again_changes_nothing(shared: Deployment, gate: str) -> None:
    ticket = await hand_in(shared.http, "/deaf", {"gate": gate})
    await gates.begun[gate].wait()
    for _ in range(2):
        answer = await shared.http.post(ticket["cancel_url"])
        assert (answer.status_code, answer.json()["status"]) == (202, "cancel_requested")
    gates.opened[gate].set()


async def test_a_job_that_ended_before_it_heard_shows_its_true_end(
    shared: Deployment, gate: str
) -> None:
    ticket = await hand_in(shared.http, "/deaf", {"gate": gate})
    await gates.begun[gate].wait()
    assert (await shared.http.post(ticket["cancel_url"])).status_code == 202
    gates.opened[gate].set()
    job = await end_of(shared.http, ticket)
    assert job["status"] in ("completed", "cancelled")
    assert (job["result_summary"] == "done all the same") == (job["status"] == "completed")


@pytest.mark.parametrize(
    ("path", "status"), [("/process", "completed"), ("/fail", "failed"), ("/held", "cancelled")]
)
async def test_an_ended_job_cannot_be_cancelled(
    shared: Deployment, gate: str, path: str, status: str
) -> None:
    ticket = await hand_in(shared.http, path, {"gate": gate} if path == "/held" else {})
    if path == "/held":
        await gates.begun[gate].wait()
        await shared.http.post(ticket["cancel_url"])
    assert (await end_of(shared.http, ticket))["status"] == status
    found = problem(await shared.http.post(ticket["cancel_url"]), 409, "job_already_ended")
    assert status in found["detail"]
