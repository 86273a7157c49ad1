"""Listing a service's jobs."""

from __future__ import annotations

from typing import Any

import pytest

from coatcheck.domain.tenants import USER_SCOPES
from tests.deployment import Deployment, bearer
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, hand_in
from tests.products.gateway.docs_service import gates, letters


@pytest.fixture
async def five(staffed: Deployment) -> tuple[Deployment, list[str]]:
    """A deployment, and the ids of five completed jobs in it, newest first."""
    tickets = [
        await hand_in(staffed.http, "/echo", {"value": number}, X_HSL_Lane=lane)
        for number, lane in enumerate(["urgent", "standard", "bulk", "standard", "urgent"])
    ]
    for ticket in tickets:
        await end_of(staffed.http, ticket)
    return staffed, [ticket["job_id"] for ticket in reversed(tickets)]


async def test_pages_by_offset_and_limit(five: tuple[Deployment, list[str]]) -> None:
    deployment, ids = five
    for offset, limit in ((0, 50), (0, 2), (2, 2), (4, 2), (5, 2), (100, 1), (0, 5)):
        page = await listed(deployment, offset=offset, limit=limit)
        assert [job["id"] for job in page["items"]] == ids[offset : offset + limit]
        assert (page["total"], page["total_is_exact"]) == (5, True)


async def test_jobs_are_shown_without_their_results(five: tuple[Deployment, list[str]]) -> None:
    deployment, ids = five
    (newest, *_) = (await listed(deployment))["items"]
    single = (await deployment.http.get(paths.job(ids[0]))).json()
    assert single["result_summary"] == 4
    left_out = {"result_summary": None, "result_omitted": True, "result_url": paths.job(ids[0])}
    assert newest == {**single, **left_out}


async def test_by_lane_and_by_status(five: tuple[Deployment, list[str]]) -> None:
    deployment, ids = five
    cancelled = await hand_in(deployment.http, "/held", {"gate": ids[0]})
    await gates.begun[ids[0]].wait()
    await deployment.http.post(cancelled["cancel_url"])
    await end_of(deployment.http, cancelled)
    by_status = await listed(deployment, status="cancelled")
    assert [job["id"] for job in by_status["items"]] == [cancelled["job_id"]]
    assert by_status["total"] == 1
    assert (await listed(deployment, status="completed"))["total"] == 5
    assert (await listed(deployment, status="processing"))["items"] == []
    urgent = await listed(deployment, lane="urgent", status="completed")
    assert [job["id"] for job in urgent["items"]] == [ids[0], ids[4]]
    assert (await listed(deployment, lane="bulk", limit=1))["total"] == 1


async def test_other_services_jobs_are_not_in_the_list(five: tuple[Deployment, list[str]]) -> None:
    deployment, _ = five
    await deployment.start_worker(letters)
    await deployment.http.post(paths.submit("/write", "letters"), json={})
    assert (await listed(deployment))["total"] == 5
    page = (await deployment.http.get(paths.jobs("letters"))).json()
    assert [job["service_id"] for job in page["items"]] == ["letters"]


async def test_an_admin_sees_everybodys_jobs_and_others_see_their_own(
    five: tuple[Deployment, list[str]],
) -> None:
    deployment, ids = five
    other = bearer(await deployment.create_key(user="other", scopes=USER_SCOPES))
    assert await total(deployment, other) == 0
    own = await deployment.http.post(paths.submit("/process"), json={}, headers=other)
    opened = await deployment.http.post(paths.submit("/open"), json={})
    page = (await deployment.http.get(paths.jobs(), headers=other)).json()
    assert [job["id"] for job in page["items"]] == [opened.json()["job_id"], own.json()["job_id"]]
    dev = bearer(await deployment.create_key(user="dev", scopes=USER_SCOPES))
    assert await total(deployment, dev) == len(ids) + 1
    assert await total(deployment, bearer(deployment.key)) == len(ids) + 2


async def listed(deployment: Deployment, **query: str | int) -> dict[str, Any]:
    answer = await deployment.http.get(paths.jobs(), params=query)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


async def total(deployment: Deployment, credential: dict[str, str]) -> int:
    answer = await deployment.http.get(paths.jobs(), headers=credential)
    count: int = answer.json()["total"]
    return count
