"""A job that is asked for at another product's path: who may see it is told where it is."""

from __future__ import annotations

import httpx2
import pytest

from coatcheck.domain.ids import new_id, to_text
from coatcheck.domain.tenants import USER_SCOPES
from tests.contract.job_resource.caller import Caller
from tests.contract.job_resource.drivers import DRIVERS, Driver
from tests.contract.job_resource.served import Served
from tests.contract.test_tenant_matrix import essence

pytestmark = pytest.mark.asyncio(loop_scope="module")


def others(driver: Driver) -> list[Driver]:
    return [each for each in DRIVERS if each.product != driver.product]


def hint(answer: httpx2.Response) -> list[dict[str, str]]:
    assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found"), answer.text
    found: list[dict[str, str]] = answer.json()["details"]
    return found


async def test_another_products_path_says_where_the_job_is_found(
    driver: Driver, caller: Caller
) -> None:
    job_id = await driver.accepted(caller)
    own = driver.status(caller, job_id)
    for other in others(driver):
        for path in other.reads(caller, job_id):
            (detail,) = hint(await caller.get(path))
            assert (detail["field"], detail["location"]) == ("id", "path")
            assert detail["issue"] == f"this is a job of {driver.product}: GET {own}"
        (detail,) = hint(await caller.post(other.cancel(caller, job_id)))
        assert detail["issue"].endswith(f"GET {own}")
    assert (await caller.get(own)).status_code in (200, 202)


async def test_who_may_not_see_a_job_learns_nothing(
    served: Served, driver: Driver, caller: Caller, stranger: Caller
) -> None:
    job_id = await driver.accepted(caller)
    colleague = Caller(
        served,
        caller.org,
        "bob",
        await served.deployment.create_key(caller.org, "bob", scopes=USER_SCOPES),
    )
    for other in others(driver):
        for asking in (stranger, colleague):
            same = {"X-Request-Id": "the-same"}
            answers = [
                essence(await asking.get(other.status(asking, each), headers=same))
                for each in (job_id, to_text(new_id()))
            ]
            assert answers[0] == answers[1]
            assert answers[0][0] == 404


async def test_the_console_finds_the_jobs_of_all_products(
    served: Served, driver: Driver, caller: Caller
) -> None:
    user = caller.with_key(
        await served.deployment.create_key(caller.org, caller.user, scopes=USER_SCOPES)
    )
    if driver.product == "batches":  # the console shows the tasks of a batch
        path, job_id = await a_task(caller)
    else:
        job_id = await driver.accepted(caller)
        path = driver.status(caller, job_id)
    for asking in (caller, user):
        found = await asking.get(f"/api/v1/orgs/{caller.org}/jobs/{job_id}")
        assert found.status_code == 200, found.text
        assert (found.json()["surface"], found.json()["urls"]["surface"]) == (driver.product, path)


async def a_task(caller: Caller) -> tuple[str, str]:
    """The path and the id of the task of a batch that waits."""
    order = {"service": "contract", "endpoint": "/work", "tasks": [{"text": "one"}]}
    batch = (await caller.post("/v1/jobs", json=order)).json()
    caller.submitted.append(batch["urls"]["cancel"])
    (task,) = (await caller.get(batch["urls"]["tasks"])).json()["items"]
    return task["urls"]["poll"], task["id"]
