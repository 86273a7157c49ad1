"""Each lane has its own slots: what fills one does not hold up another."""

from __future__ import annotations

import asyncio

from coatcheck import ConcurrencyLimit, Job, Lane, Service, State
from tests.deployment import Deployment, lane_slots
from tests.waiting import eventually_async


class Stage:
    """Handlers that wait for the gate, and how many of them were on stage at once."""

    def __init__(self, **options: int) -> None:
        self.service = Service("lab")
        self.gate = asyncio.Event()
        self.on_stage = 0
        self.most = 0
        self.performed: list[str] = []

        @self.service.post("/perform", **options)  # type: ignore[arg-type]
        async def perform(job: Job) -> None:
            self.on_stage += 1
            self.most = max(self.most, self.on_stage)
            try:
                await self.gate.wait()
            finally:
                self.on_stage -= 1
            self.performed.append(job.id)

        @self.service.post("/quick")
        async def quick() -> str:
            return "quick"

    async def full(self, number: int) -> None:
        async def look() -> bool:
            return self.on_stage == number

        await eventually_async(look, f"{number} handlers run")


async def test_a_lane_runs_no_more_jobs_at_once_than_it_has_slots(deployment: Deployment) -> None:
    stage = Stage()
    await deployment.start_worker(stage.service, lane_concurrency=lane_slots(standard=3))
    tickets = [await deployment.engine.submit("lab.post__perform") for _ in range(9)]
    await stage.full(3)
    stage.gate.set()
    await deployment.wait_for_ends(tickets)

    assert stage.most == 3
    assert len(stage.performed) == 9


async def test_a_worker_claims_no_long_job_that_it_has_no_slot_for(deployment: Deployment) -> None:
    stage = Stage()
    await deployment.start_worker(stage.service, lane_concurrency=lane_slots(standard=2))
    tickets = [await deployment.engine.submit("lab.post__perform") for _ in range(6)]
    await stage.full(2)
    # By the time it has finished an urgent job it has looked for work again.
    urgent = await deployment.engine.submit("lab.post__quick", lane=Lane.URGENT)
    await deployment.wait_for_end(urgent)

    assert await _held(deployment) == 2
    stage.gate.set()
    await deployment.wait_for_ends(tickets)


async def test_jobs_claimed_ahead_are_given_back_when_the_running_ones_prove_long(
    deployment: Deployment,
) -> None:
    stage = Stage()
    await deployment.start_worker(stage.service, lane_concurrency=lane_slots(standard=2))
    short = [await deployment.engine.submit("lab.post__quick") for _ in range(30)]
    await deployment.wait_for_ends(short)
    tickets = [await deployment.engine.submit("lab.post__perform") for _ in range(6)]
    await stage.full(2)
    # Nothing of the first worker ends, so the others can only run elsewhere.
    await deployment.start_worker(stage.service, lane_concurrency=lane_slots(standard=4))
    await stage.full(6)
    stage.gate.set()
    views = await deployment.wait_for_ends(tickets)

    assert {view.state for view in views} == {State.COMPLETED}
    assert {view.failures + view.crashes for view in views} == {0}
    assert sorted(stage.performed) == sorted(ticket.id for ticket in tickets)


async def test_an_urgent_job_runs_while_every_bulk_slot_is_busy(deployment: Deployment) -> None:
    stage = Stage()
    await deployment.start_worker(stage.service, lane_concurrency=lane_slots(bulk=2))
    bulk = [await deployment.engine.submit("lab.post__perform", lane=Lane.BULK) for _ in range(20)]
    await stage.full(2)
    urgent = await deployment.engine.submit("lab.post__quick", lane=Lane.URGENT)
    view = await deployment.wait_for_end(urgent)

    assert view.state is State.COMPLETED
    assert stage.performed == []
    stage.gate.set()
    await deployment.wait_for_ends(bulk)


async def test_a_worker_leaves_a_lane_without_slots_to_others(deployment: Deployment) -> None:
    stage = Stage()
    await deployment.start_worker(stage.service, lane_concurrency=lane_slots(bulk=0))
    bulk = await deployment.engine.submit("lab.post__quick", lane=Lane.BULK)
    standard = await deployment.engine.submit("lab.post__quick")
    await deployment.wait_for_end(standard)
    left = await deployment.state(bulk)
    await deployment.start_worker(stage.service)

    assert left is State.QUEUED
    assert (await deployment.wait_for_end(bulk)).state is State.COMPLETED


async def test_an_endpoints_own_limit_holds_over_all_workers(deployment: Deployment) -> None:
    stage = Stage(concurrency=2)
    for _ in range(2):
        await deployment.start_worker(stage.service)
    tickets = [await deployment.engine.submit("lab.post__perform") for _ in range(8)]
    await stage.full(2)
    for _ in range(5):
        # Whatever else either worker does, it takes no third.
        await deployment.wait_for_end(await deployment.engine.submit("lab.post__quick"))
        assert await _held(deployment) <= 2
    stage.gate.set()
    await deployment.wait_for_ends(tickets)

    assert stage.most == 2
    assert len(stage.performed) == 8


async def test_a_limit_that_is_set_while_workers_run_holds_from_the_next_claim_on(
    deployment: Deployment,
) -> None:
    stage = Stage()
    await deployment.start_worker(stage.service)
    await deployment.engine.set_limit(ConcurrencyLimit("acme", "org", "", 1))
    tickets = [await deployment.engine.submit("lab.post__perform", org="acme") for _ in range(3)]
    other = await deployment.engine.submit("lab.post__quick", org="other")
    await stage.full(1)
    await deployment.engine.wait(other.id, org="other")
    held = await _held(deployment)
    stage.gate.set()
    views = [await deployment.engine.wait(ticket.id, org="acme") for ticket in tickets]

    assert held == 1
    assert stage.most == 1
    assert {view.state for view in views} == {State.COMPLETED}


async def _held(deployment: Deployment) -> int:
    held: int = await deployment.sql.fetchval("SELECT count(*) FROM jobs WHERE lease IS NOT NULL")
    return held
