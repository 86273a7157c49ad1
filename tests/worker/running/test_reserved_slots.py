"""Slots of a lane are kept for organisations that hold none: those that hang cannot take all."""

from __future__ import annotations

import asyncio

from coatcheck import ConcurrencyLimit, Service, State
from coatcheck.domain.lanes import Lane, LanePolicy
from tests.deployment import Deployment, lane_slots
from tests.waiting import eventually_async

SLOTS = 8
KEPT = 1


class Hanging:
    """A service whose handlers wait until the gate opens, and how many of each organisation do."""

    def __init__(self) -> None:
        self.service = Service("lab")
        self.gate = asyncio.Event()
        self.most = 0
        self._at_once = 0

        @self.service.post("/hang")
        async def hang() -> None:
            self._at_once += 1
            self.most = max(self.most, self._at_once)
            try:
                await self.gate.wait()
            finally:
                self._at_once -= 1

        @self.service.post("/quick")
        async def quick() -> str:
            return "quick"

    async def full(self, number: int) -> None:
        async def look() -> bool:
            return self._at_once == number

        await eventually_async(look, f"{number} handlers run")


async def test_an_organisation_that_hangs_leaves_a_slot_to_the_others(
    deployment: Deployment,
) -> None:
    hanging = Hanging()
    engine = deployment.engine
    await _known(deployment, hanging)
    hung = [await engine.submit("lab.post__hang", org="greedy") for _ in range(3 * SLOTS)]
    await hanging.full(SLOTS - KEPT)
    for org in ("one", "two", "one"):
        tickets = [await engine.submit("lab.post__quick", org=org) for _ in range(5)]
        for view in await deployment.wait_for_ends(tickets, org=org):
            assert view.state is State.COMPLETED
    assert hanging.most == SLOTS - KEPT
    hanging.gate.set()
    await deployment.wait_for_ends(hung, org="greedy")


async def test_jobs_that_were_claimed_ahead_do_not_take_the_last_slot_either(
    deployment: Deployment,
) -> None:
    """Many short jobs make a worker claim ahead; what it has then may hang."""
    hanging = Hanging()
    engine = deployment.engine
    await _known(deployment, hanging)
    short = [await engine.submit("lab.post__quick", org="greedy") for _ in range(60)]
    await deployment.wait_for_ends(short, org="greedy")
    hung = [await engine.submit("lab.post__hang", org="greedy") for _ in range(3 * SLOTS)]
    await hanging.full(SLOTS - KEPT)
    tickets = [await engine.submit("lab.post__quick", org="one") for _ in range(40)]
    await deployment.wait_for_ends(tickets, org="one")
    assert hanging.most == SLOTS - KEPT
    hanging.gate.set()
    await deployment.wait_for_ends(hung, org="greedy")


async def test_slots_are_kept_from_work_under_a_limit_as_well(deployment: Deployment) -> None:
    hanging = Hanging()
    engine = deployment.engine
    await engine.set_limit(ConcurrencyLimit("greedy", "org", "", 100))
    await engine.set_limit(ConcurrencyLimit("one", "org", "", 100))
    await _known(deployment, hanging)
    hung = [await engine.submit("lab.post__hang", org="greedy") for _ in range(3 * SLOTS)]
    await hanging.full(SLOTS - KEPT)
    tickets = [await engine.submit("lab.post__quick", org="one") for _ in range(5)]
    await deployment.wait_for_ends(tickets, org="one")
    assert hanging.most == SLOTS - KEPT
    hanging.gate.set()
    await deployment.wait_for_ends(hung, org="greedy")


async def test_the_only_organisation_has_every_slot(deployment: Deployment) -> None:
    hanging = Hanging()
    await deployment.start_worker(hanging.service, lane_concurrency=lane_slots(standard=SLOTS))
    hung = [await deployment.engine.submit("lab.post__hang") for _ in range(2 * SLOTS)]
    await hanging.full(SLOTS)
    hanging.gate.set()
    await deployment.wait_for_ends(hung)


async def test_none_are_kept_where_the_setting_says_so(deployment: Deployment) -> None:
    hanging = Hanging()
    await _known(deployment, hanging, lane_reserved_percent=dict.fromkeys(Lane, 0.0))
    hung = [
        await deployment.engine.submit("lab.post__hang", org="greedy") for _ in range(2 * SLOTS)
    ]
    await hanging.full(SLOTS)
    hanging.gate.set()
    await deployment.wait_for_ends(hung, org="greedy")


def test_a_lane_keeps_an_eighth_of_its_slots_and_at_least_one_of_two() -> None:
    kept = {slots: LanePolicy(3, 60.0, slots).reserved for slots in (0, 1, 2, 8, 16, 32, 100)}
    assert kept == {0: 0, 1: 0, 2: 1, 8: 1, 16: 2, 32: 4, 100: 12}
    assert LanePolicy(3, 60.0, 32, reserved_percent=0).reserved == 0


async def _known(deployment: Deployment, hanging: Hanging, **settings: object) -> None:
    """A worker that has done work of two organisations."""
    tickets = {
        org: await deployment.engine.submit("lab.post__quick", org=org)
        for org in ("first", "second")
    }
    await deployment.start_worker(
        hanging.service, lane_concurrency=lane_slots(standard=SLOTS), **settings
    )
    for org, ticket in tickets.items():
        await deployment.wait_for_end(ticket, org=org)
