"""The catalogue is what live workers publish, together: canaries, rolling deploys, dead workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck import Service
from coatcheck.db.connection import Connection
from coatcheck.domain.lanes import Lane
from tests.db.publishing import publish
from tests.db.rows import connected
from tests.products.gateway import paths
from tests.products.house import House, bearer
from tests.waiting import eventually_async


def service(*answered: str, lane: Lane = Lane.STANDARD) -> Service:
    """A version of the code: the paths that it answers, and in which lane."""
    shop = Service("shop")
    for path in answered:

        @shop.post(path, lane=lane)
        async def answer() -> str:
            return lane.value

    return shop


@pytest.fixture
async def house(dsn: str, tmp_path: Path) -> AsyncIterator[House]:
    async with House(dsn, tmp_path) as opened:
        yield opened


async def submit(house: House, path: str) -> dict[str, Any]:
    answer = await house.http.post(paths.submit(path, "shop"), json={})
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job


async def ended(house: House, job: dict[str, Any]) -> dict[str, Any]:
    answer = await house.http.get(f"{job['poll_url']}?wait=30")
    shown: dict[str, Any] = answer.json()
    return shown


async def lane_of_next(house: House, path: str) -> str:
    job = await submit(house, path)
    lane: str = (await house.http.get(job["poll_url"])).json()["lane"]
    return lane


async def until_lane(house: House, path: str, lane: Lane) -> None:
    async def is_there() -> bool:
        return await lane_of_next(house, path) == lane.value

    await eventually_async(is_there, f"jobs of {path} go to {lane}")


async def test_a_second_worker_adds_its_endpoints_and_takes_none_away(house: House) -> None:
    await house.work(service("/pay", "/refund"))
    canary = await house.work(service("/gift"))
    for path in ("/pay", "/refund", "/gift"):
        assert (await ended(house, await submit(house, path)))["status"] == "completed"
    await house.dismiss(canary)
    for path in ("/pay", "/refund"):
        assert (await ended(house, await submit(house, path)))["status"] == "completed"


async def test_an_endpoint_whose_worker_has_gone_is_accepted_and_waits(house: House) -> None:
    await house.work(service("/pay"))
    canary = await house.work(service("/gift"))
    await house.dismiss(canary)
    job = await submit(house, "/gift")
    explained = (await house.http.get(f"{job['poll_url']}/explain")).json()
    assert explained["blockers"][0]["kind"] == "no_worker"
    await house.work(service("/gift"))
    assert (await ended(house, job))["status"] == "completed"


async def test_the_newest_definition_is_in_force_until_its_worker_has_gone(house: House) -> None:
    await house.work(service("/pay", "/refund"))
    canary = await house.work(service("/pay", lane=Lane.BULK))
    await until_lane(house, "/pay", Lane.BULK)
    assert await lane_of_next(house, "/refund") == "standard"
    await house.dismiss(canary)
    await until_lane(house, "/pay", Lane.STANDARD)


async def test_a_canary_that_falls_silent_is_no_longer_in_force(house: House) -> None:
    house.keep_up()
    await house.work(service("/pay"))
    line = Connection(house.settings.database_url, name="test canary")
    try:
        await publish(line, {"shop": [service("/pay", lane=Lane.BULK).spec]}, lease_seconds=2.0)
        await until_lane(house, "/pay", Lane.BULK)
        await until_lane(house, "/pay", Lane.STANDARD)
    finally:
        await line.close()


async def test_a_worker_that_was_forgotten_publishes_again(dsn: str, tmp_path: Path) -> None:
    """Its registration is gone, and so is what it published with it: both come back together."""
    leases = dict.fromkeys(Lane, 3.0)
    async with House(dsn, tmp_path, lane_ack_seconds=leases) as house:
        house.keep_up()
        await house.work(service("/pay"))
        await house.work(service("/pay", lane=Lane.BULK))
        async with connected(dsn) as connection:
            await connection.execute("DELETE FROM workers")
        await until_lane(house, "/pay", Lane.BULK)

        async def published_by_both() -> bool:
            async with connected(dsn) as connection:
                rows = await connection.fetch("SELECT publishes FROM workers")
            return len(rows) == 2 and all(row["publishes"] for row in rows)

        await eventually_async(published_by_both, "both workers are registered again")
        await until_lane(house, "/pay", Lane.BULK)


async def test_a_job_of_an_endpoint_that_only_the_canary_has_is_left_to_it(house: House) -> None:
    await house.work(service("/pay"))
    canary = await house.work(service("/pay", "/gift"))
    await house.dismiss(canary)
    job = await submit(house, "/gift")
    for _ in range(3):  # the other worker claims, and passes it over
        assert (await ended(house, await submit(house, "/pay")))["status"] == "completed"
    assert (await house.http.get(job["poll_url"])).json()["status"] == "queued"


async def test_what_a_tenant_registered_goes_before_what_workers_publish(house: House) -> None:
    await house.org("guests")
    key = bearer(await house.create_key("guests"))
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
    assert (await house.http.put(place, json=registered, headers=key)).status_code == 200
    worker = await house.work(service("/pay"))
    for path, status in (("/own", 202), ("/pay", 404)):
        answer = await house.http.post(
            paths.submit(path, "shop", org="guests"), json={}, headers=key
        )
        assert answer.status_code == status, answer.text
    assert (await ended(house, await submit(house, "/pay")))["status"] == "completed"
    await house.dismiss(worker)
    # As long as the endpoints of the worker are known, nobody else can take the name.
    refused = await house.http.put(paths.hosted("shop"), json=registered)
    assert (refused.status_code, refused.json()["code"]) == (409, "service_name_taken")


async def test_a_conflict_is_said_once_by_the_worker_that_comes(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> list[str]:
        return [each.message for each in caplog.records if "different definitions" in each.message]

    await house.work(service("/pay", "/refund"))
    await house.work(service("/pay", "/refund"))
    assert said() == []
    canary = await house.work(service("/pay", lane=Lane.BULK))
    assert said() == [
        "live workers publish different definitions of shop.post__pay (lane); the newest of each "
        "applies"
    ]
    await house.dismiss(canary)
    await house.work(service("/refund"))
    assert len(said()) == 1
