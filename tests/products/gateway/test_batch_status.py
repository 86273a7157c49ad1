"""Many jobs in one request."""

from __future__ import annotations

import pytest

from tests.deployment import Deployment, bearer
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, hand_in, problem
from tests.products.gateway.docs_service import letters

pytestmark = pytest.mark.asyncio(loop_scope="module")

BATCH = paths.jobs() + "/batch-status"
ABSENT = "0" * 26


async def test_jobs_come_in_the_order_asked_for(shared: Deployment) -> None:
    tickets = [await hand_in(shared.http, "/echo", {"value": number}) for number in range(3)]
    jobs = [await end_of(shared.http, ticket) for ticket in tickets]
    wanted = [jobs[2], jobs[0], jobs[1], jobs[0]]
    answer = await shared.http.get(BATCH, params={"job_ids": ",".join(job["id"] for job in wanted)})
    assert answer.status_code == 200
    assert answer.json() == {"items": wanted, "not_found": []}


async def test_ids_that_name_no_job_of_the_callers_are_listed_apart(shared: Deployment) -> None:
    await shared.start_worker(letters)
    await shared.create_org("elsewhere")
    elsewhere = bearer(await shared.create_key("elsewhere"))
    foreign = await shared.http.post(
        paths.submit("/process", org="elsewhere"), json={}, headers=elsewhere
    )
    others = await shared.http.post(
        paths.submit("/process"), json={}, headers=bearer(await shared.create_key(user="other"))
    )
    letter = await shared.http.post(paths.submit("/write", "letters"), json={})
    mine = await hand_in(shared.http, "/process")
    unknown = [
        ABSENT,
        "x",
        "é",
        *(answer.json()["job_id"] for answer in (foreign, others, letter)),
    ]
    answer = await shared.http.get(BATCH, params={"job_ids": ",".join([*unknown, mine["job_id"]])})
    found = answer.json()
    assert [job["id"] for job in found["items"]] == [mine["job_id"]]
    assert found["not_found"] == unknown


async def test_two_hundred_jobs_at_once_and_no_more(shared: Deployment) -> None:
    ids = [ABSENT] * 200
    answer = await shared.http.get(BATCH, params={"job_ids": ",".join(ids)})
    assert answer.json() == {"items": [], "not_found": ids}
    answer = await shared.http.get(BATCH, params={"job_ids": ",".join([*ids, ABSENT])})
    problem(answer, 400, "invalid_parameter")


@pytest.mark.parametrize("query", ["", "job_ids=", "job_ids=,", "job_ids=a&job_ids=b", "ids=a"])
async def test_a_batch_that_names_nothing_is_refused(shared: Deployment, query: str) -> None:
    problem(await shared.http.get(f"{BATCH}?{query}"), 400, "invalid_parameter")


async def test_a_service_is_not_found_in_another_workspace(shared: Deployment) -> None:
    path = paths.jobs(workspace="elsewhere") + "/batch-status"
    problem(await shared.http.get(path, params={"job_ids": ABSENT}), 404, "not_found")
