"""The catalogue is what live workers publish, together: canaries, rolling deploys, dead workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coatcheck import Service
from coatcheck.db.connection import Connection
from coatcheck.domain.lanes import Lane
from tests.db.publishing import publish
from tests.db.rows import connected
from tests.deployment import Deployment, bearer
from tests.products.gateway import paths
from tests.waiting import eventually_async


def service(*answered: str, lane: Lane = Lane.STANDARD) -> Service:
    """A version of the code: the paths that it answers, and in which lane."""
    shop = Service("shop")
    for path in answered:

        @shop.post(path, lane=lane)
        async def answer() -> str:
            return lane.value

    return shop


async def submit(deployment: Deployment, path: str) -> dict[str, Any]:
    answer = await deployment.http.post(paths.submit(path, "shop"), json={})
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job


async def ended(deployment: Deployment, job: dict[str, Any]) -> dict[str, Any]:
    answer = await deployment.http.get(f"{job['poll_url']}?wait=30")
    shown: dict[str, Any] = answer.json()
    return shown


async def lane_of_next(deployment: Deployment, path: str) -> str:
    job = await submit(deployment, path)
    lane: str = (await deployment.http.get(job["poll_url"])).json()["lane"]
    return lane


async def until_lane(deployment: Deployment, path: str, lane: Lane) -> None:
    async def is_there() -> bool:
        return await lane_of_next(deployment, path) == lane.value

    await eventually_async(is_there, f"jobs of {path} go to {lane}")


async def test_a_second_worker_adds_its_endpoints_and_takes_none_away(
    deployment: Deployment,
) -> None:
    await deployment.start_worker(service("/pay", "/refund"))
    canary = await deployment.start_worker(service("/gift"))
    for path in ("/pay", "/refund", "/gift"):
        assert (await ended(deployment, await submit(deployment, path)))["status"] == "completed"
    await deployment.stop_worker(canary)
    for path in ("/pay", "/refund"):
        assert (await ended(deployment, await submit(deployment, path)))["status"] == "completed"


async def test_an_endpoint_whose_worker_has_gone_is_accepted_and_waits(
    deployment: Deployment,
) -> None:
    await deployment.start_worker(service("/pay"))
    canary = await deployment.start_worker(service("/gift"))
    await deployment.stop_worker(canary)
    job = await submit(deployment, "/gift")
    explained = (await deployment.http.get(f"{job['poll_url']}/explain")).json()
    assert explained["blockers"][0]["kind"] == "no_worker"
    await deployment.start_worker(service("/gift"))
    assert (await ended(deployment, job))["status"] == "completed"


async def test_the_newest_definition_is_in_force_until_its_worker_has_gone(
    deployment: Deployment,
) -> None:
    await deployment.start_worker(service("/pay", "/refund"))
    canary = await deployment.start_worker(service("/pay", lane=Lane.BULK))
    await until_lane(deployment, "/pay", Lane.BULK)
    assert await lane_of_next(deployment, "/refund") == "standard"
    await deployment.stop_worker(canary)
    await until_lane(deployment, "/pay", Lane.STANDARD)


async def test_a_canary_that_falls_silent_is_no_longer_in_force(deployment: Deployment) -> None:
    deployment.start_maintenance()
    await deployment.start_worker(service("/pay"))
    line = Connection(deployment.settings.database_url, name="test canary")
    try:
        await publish(line, {"shop": [service("/pay", lane=Lane.BULK).spec]}, lease_seconds=2.0)
        await until_lane(deployment, "/pay", Lane.BULK)
        await until_lane(deployment, "/pay", Lane.STANDARD)
    finally:
        await line.close()


async def test_a_worker_that_was_forgotten_publishes_again(dsn: str, tmp_path: Path) -> None:
    """Its registration is gone, and so is what it published with it: both come back together."""
    leases = dict.fromkeys(Lane, 3.0)
    async with Deployment(dsn, tmp_path, lane_ack_seconds=leases) as deployment:
        deployment.start_maintenance()
        await deployment.start_worker(service("/pay"))
        await deployment.start_worker(service("/pay", lane=Lane.BULK))
        async with connected(dsn) as connection:
            await connection.execute("DELETE FROM workers")
        await until_lane(deployment, "/pay", Lane.BULK)

        async def published_by_both() -> bool:
            async with connected(dsn) as connection:
                rows = await connection.fetch("SELECT publishes FROM workers")
            return len(rows) == 2 and all(row["publishes"] for row in rows)

        await eventually_async(published_by_both, "both workers are registered again")
        await until_lane(deployment, "/pay", Lane.BULK)


async def test_a_job_of_an_endpoint_that_only_the_canary_has_is_left_to_it(
    deployment: Deployment,
) -> None:
    await deployment.start_worker(service("/pay"))
    canary = await deployment.start_worker(service("/pay", "/gift"))
    await deployment.stop_worker(canary)
    job = await submit(deployment, "/gift")
    for _ in range(3):  # the other worker claims, and passes it over
        assert (await ended(deployment, await submit(deployment, "/pay")))["status"] == "completed"
    assert (await deployment.http.get(job["poll_url"])).json()["status"] == "queued"


async def test_what_a_tenant_registered_goes_before_what_workers_publish(
    deployment: Deployment,
) -> None:
    await deployment.create_org("guests")
    key = bearer(await deployment.create_key("guests"))
    registered = {
        "versions": {
            "1": {
                "endpoints": [
                    {
                        "method": "POST",
                        "path": "/own",
                        "target": {"type": "http", "url": "http://127.0.0.1:9/own"},
                    }
                ]
            }
        }
    }
    place = paths.hosted("shop", org="guests")
    assert (await deployment.http.put(place, json=registered, headers=key)).status_code == 200
    worker = await deployment.start_worker(service("/pay"))
    for path, status in (("/own", 202), ("/pay", 404)):
        answer = await deployment.http.post(
            paths.submit(path, "shop", org="guests"), json={}, headers=key
        )
        assert answer.status_code == status, answer.text
    assert (await ended(deployment, await submit(deployment, "/pay")))["status"] == "completed"
    await deployment.stop_worker(worker)
    # As long as the endpoints of the worker are known, nobody else can take the name.
    refused = await deployment.http.put(paths.hosted("shop"), json=registered)
    assert (refused.status_code, refused.json()["code"]) == (409, "service_name_taken")


async def test_a_conflict_is_said_once_by_the_worker_that_comes(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> list[str]:
        return [each.message for each in caplog.records if "different definitions" in each.message]

    await deployment.start_worker(service("/pay", "/refund"))
    await deployment.start_worker(service("/pay", "/refund"))
    assert said() == []
    canary = await deployment.start_worker(service("/pay", lane=Lane.BULK))
    assert said() == [
        "live workers publish different definitions of shop.post__pay (lane); the newest of each "
        "applies"
    ]
    await deployment.stop_worker(canary)
    await deployment.start_worker(service("/refund"))
    assert len(said()) == 1
