"""Lanes: how a caller chooses one, and how often each tries again."""

from __future__ import annotations

import asyncio

import pytest

from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, hand_in, problem

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_lane_tries_again_as_often_as_it_promises(shared: Deployment) -> None:
    retries = {"urgent": 5, "standard": 3, "bulk": 3}
    tickets = [await hand_in(shared.http, "/tired", X_HSL_Lane=lane) for lane in retries]
    jobs = await asyncio.gather(*(end_of(shared.http, ticket) for ticket in tickets))
    assert {job["lane"]: job["attempt_count"] - 1 for job in jobs} == retries
    assert {job["status"] for job in jobs} == {"failed"}


async def test_ack_timeouts_are_those_of_the_table(shared: Deployment) -> None:
    lanes = shared.settings.lanes
    assert {lane.value: policy.ack_seconds for lane, policy in lanes.items()} == {
        "urgent": 30,
        "standard": 120,
        "bulk": 300,
    }


async def test_without_a_header_the_lane_is_the_endpoints_own(shared: Deployment) -> None:
    job = await end_of(shared.http, await hand_in(shared.http, "/unhurried"))
    assert job["lane"] == "bulk"
    job = await end_of(shared.http, await hand_in(shared.http, "/process"))
    assert job["lane"] == "standard"


async def test_the_header_goes_before_the_endpoints_own_lane(shared: Deployment) -> None:
    job = await end_of(shared.http, await hand_in(shared.http, "/unhurried", X_HSL_Lane="urgent"))
    assert job["lane"] == "urgent"


@pytest.mark.parametrize("route", [paths.submit("/process"), paths.call("/process")])
@pytest.mark.parametrize("lane", ["express", ""])
async def test_an_unknown_lane_is_refused(shared: Deployment, route: str, lane: str) -> None:
    answer = await shared.http.post(route, json={}, headers={"X-HSL-Lane": lane})
    found = problem(answer, 400, "unknown_lane")
    assert "urgent, standard, bulk" in found["detail"]


async def test_a_synchronous_call_takes_a_lane_too(shared: Deployment) -> None:
    answer = await shared.http.post(
        paths.call("/process"), json={}, headers={"X-HSL-Lane": "bulk", "Prefer": "respond-async"}
    )
    job = await end_of(shared.http, answer.json())
    assert job["lane"] == "bulk"
