"""What a worker tells of itself when it starts: what it serves, and what its code declares."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coatcheck import Service, State
from coatcheck.core.catalogue import Catalogue
from coatcheck.core.queries import leases
from coatcheck.core.queries.services import lock_published
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.worker.worker import Worker
from tests.deployment import Deployment, lane_seconds, lane_slots
from tests.waiting import eventually_async


def docs(version: int = 1) -> Service:
    service = Service("docs", version)

    @service.post("/work")
    async def work(number: int = 0) -> str:
        return f"version {version}: {number}"

    return service


async def test_a_workers_services_can_be_found_once_it_is_ready(deployment: Deployment) -> None:
    await deployment.start_worker(docs())
    catalogue = Catalogue(deployment.settings, deployment.database)
    try:
        found = await catalogue.find("acme", "docs")
        assert found is not None
        assert (found.source, found.latest) == ("code", 1)
        matched = found.match(None, "POST", "/work")
        assert matched is not None
        assert matched.spec == docs().endpoints["post__work"].spec
    finally:
        await catalogue.close()


async def test_versions_of_a_service_run_side_by_side(deployment: Deployment) -> None:
    await deployment.start_worker(docs(1))
    await deployment.start_worker(docs(2))
    await both_versions_work(deployment)


async def test_one_worker_serves_and_publishes_two_versions(deployment: Deployment) -> None:
    await deployment.start_worker(docs(1), docs(2))
    await both_versions_work(deployment)


async def both_versions_work(deployment: Deployment) -> None:
    tickets = [
        await deployment.engine.submit(endpoint, {"number": 7})
        for endpoint in ("docs.post__work", "docs.v2.post__work")
    ]
    ended = await deployment.wait_for_ends(tickets)
    assert [view.result for view in ended] == [b'"version 1: 7"', b'"version 2: 7"']
    catalogue = Catalogue(deployment.settings, deployment.database)
    try:
        found = await catalogue.find("acme", "docs")
        assert found is not None
        assert sorted(found.versions) == [1, 2]
    finally:
        await catalogue.close()


async def test_a_worker_says_what_it_serves_and_in_which_lanes(deployment: Deployment) -> None:
    worker = await deployment.start_worker(docs(2), lane_concurrency=lane_slots(bulk=0))
    row = await deployment.sql.fetchrow(
        "SELECT endpoints, lanes FROM workers WHERE boot = $1", worker.boot
    )
    assert row is not None
    assert row["endpoints"] == ["docs.v2.post__work"]
    assert sorted(row["lanes"]) == ["standard", "urgent"]


async def test_a_worker_whose_database_goes_away_as_it_starts_waits_for_it(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = leases.register
    refusals = iter([DatabaseUnavailable("it is away"), OutcomeUnknown("its answer was lost")])

    async def away_at_first(*arguments: Any, **named: Any) -> int:
        for refusal in refusals:
            raise refusal
        return await register(*arguments, **named)

    monkeypatch.setattr(leases, "register", away_at_first)
    await deployment.start_worker(docs(), poll_seconds_min=0.05)
    ticket = await deployment.engine.submit("docs.post__work")
    assert (await deployment.wait_for_end(ticket)).state is State.COMPLETED


async def test_a_worker_that_waits_for_its_database_can_be_told_to_stop(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = asyncio.Event()

    async def away(*arguments: Any, **named: Any) -> int:
        tried.set()
        raise DatabaseUnavailable("it is away")

    monkeypatch.setattr(leases, "register", away)
    worker = Worker(deployment.settings_with(poll_seconds_min=60.0), [docs()])
    running = asyncio.create_task(worker.run())
    await tried.wait()
    worker.stop()
    # Without an error: that would tear the drain of other workers of its process.
    await running


@pytest.mark.parametrize(
    "how",
    ["DELETE FROM workers", "UPDATE workers SET died_at = now()"],
    ids=["forgotten", "said to be dead"],
)
async def test_a_worker_whose_registration_is_gone_says_it_again(
    deployment: Deployment, how: str
) -> None:
    worker = await deployment.start_worker(docs(), lane_ack_seconds=lane_seconds(3.0))
    first = worker.boot
    await deployment.sql.execute(how)

    async def registered_again() -> list[str] | None:
        served: list[str] | None = await deployment.sql.fetchval(
            "SELECT endpoints FROM workers WHERE boot <> $1", first
        )
        return served

    served = await eventually_async(registered_again, "the worker registers again")
    assert served == ["docs.post__work"]


async def test_a_builtin_service_is_served_and_not_published(deployment: Deployment) -> None:
    """Nobody may call it by its name: the gateway alone submits to it."""
    gateway = Service("gateway", product="gateway")

    @gateway.post("/http")
    async def call() -> None: ...

    await deployment.start_worker(gateway)
    assert await deployment.sql.fetchval("SELECT endpoints FROM workers") == ["gateway.post__http"]
    assert await deployment.sql.fetchval("SELECT count(*) FROM services") == 0


async def test_a_worker_publishes_though_its_connection_breaks(deployment: Deployment) -> None:
    async with deployment.sql.transaction():
        await deployment.sql.execute("LOCK TABLE services IN ACCESS EXCLUSIVE MODE")
        starting = asyncio.create_task(deployment.start_worker(docs()))
        pid = await deployment.wait_until_blocked("coatcheck pool")
        await deployment.sql.execute("SELECT pg_terminate_backend($1)", pid)
    await starting

    async def published() -> bool:
        return bool(await deployment.sql.fetchval("SELECT count(*) FROM services"))

    await eventually_async(published, "the service is in the catalogue")


async def test_a_worker_that_waits_to_register_holds_up_no_other_of_its_process(
    deployment: Deployment,
) -> None:
    """They share the connections of the process, and somebody may be frozen with the lock."""
    first = Worker(deployment.settings, [docs(1)], database=deployment.database)
    await deployment.run_worker(first)
    second = Worker(deployment.settings, [docs(2)], database=deployment.database)
    async with deployment.sql.transaction():
        await lock_published(deployment.sql)
        starting = asyncio.create_task(deployment.run_worker(second))
        await deployment.wait_until_blocked("coatcheck pool")
        ticket = await deployment.engine.submit("docs.post__work")
        (ended,) = await deployment.wait_for_ends([ticket])
        assert ended.state is State.COMPLETED
        assert not second.ready.is_set()
    await starting
