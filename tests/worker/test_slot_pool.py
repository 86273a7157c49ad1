"""The slots of a lane, and those kept for organisations that hold none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import uuid4

import pytest

from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import CLAIM_ROWS_MAX
from coatcheck.worker import slots
from coatcheck.worker.slots import SlotPool
from tests.waiting import until_true

SLOTS = 4
KEPT = 1


class Clock:
    """Stands in for the module ``time``: it moves when the test says."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Lab:
    """A crew whose jobs run until the test ends them. ``begun`` are those that run, in order."""

    def __init__(self) -> None:
        self.slots = SlotPool(SLOTS, self._run, reserved=KEPT)
        self.begun: list[ClaimedJob] = []
        self._ends: dict[int, asyncio.Event] = {}

    async def _run(self, job: ClaimedJob, _: asyncio.Task[None]) -> None:
        self.begun.append(job)
        try:
            await self._ends.setdefault(job.lease, asyncio.Event()).wait()
        finally:
            self.begun.remove(job)

    def give(self, count: int, org: str) -> list[ClaimedJob]:
        jobs = [_job(org) for _ in range(count)]
        self.slots.give(jobs)
        return jobs

    def end(self, *jobs: ClaimedJob) -> None:
        for job in jobs:
            self._ends.setdefault(job.lease, asyncio.Event()).set()

    async def until_run(self, *jobs: ClaimedJob) -> None:
        await until_true(lambda: set(_leases(self.begun)) == set(_leases(jobs)), "just these run")

    async def until_held_back(self, *jobs: ClaimedJob) -> None:
        """Until these are all that has not begun, and a slot was free and could not be had."""
        await until_true(
            lambda: (
                self.slots.leases() == set(_leases(jobs))
                and self.slots.room_for_newcomers() == SLOTS - len(self.begun)
            ),
            "these are held back",
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(slots, "time", clock)
    return clock


@pytest.fixture
async def lab(clock: Clock) -> AsyncIterator[Lab]:
    lab = Lab()
    yield lab
    await lab.slots.close()


async def test_jobs_that_are_held_back_and_move_on_are_not_given_back(
    clock: Clock, lab: Lab
) -> None:
    slots = lab.slots
    slots.share(True)
    jobs = lab.give(7, "greedy")
    await lab.until_run(*jobs[:3])
    await lab.until_held_back(*jobs[3:])
    for number in range(3):  # together longer than any may be held back
        clock.now += 0.75
        assert slots.take_back_stuck(clock.now) == []
        lab.end(jobs[number])
        await lab.until_run(*jobs[number + 1 : number + 4])
        await lab.until_held_back(*jobs[number + 4 :])
    assert slots.take_back_stuck(clock.now + 0.75) == []


async def test_jobs_that_are_held_back_and_move_on_no_more_are_given_back(
    clock: Clock, lab: Lab
) -> None:
    lab.slots.share(True)
    jobs = lab.give(6, "greedy")
    await lab.until_run(*jobs[:3])
    await lab.until_held_back(*jobs[3:])
    clock.now += 0.75
    lab.end(jobs[0])
    await lab.until_run(*jobs[1:4])
    assert lab.slots.take_back_stuck(clock.now + 0.75) == []
    assert lab.slots.take_back_stuck(clock.now + 1.0) == jobs[4:]
    assert lab.slots.leases() == set()


async def test_who_began_before_slots_were_kept_holds_a_slot_afterwards(lab: Lab) -> None:
    slots = lab.slots
    running = lab.give(3, "greedy")
    await lab.until_run(*running)
    slots.share(True)
    assert slots.holders() == {"greedy"}
    (more,) = lab.give(1, "greedy")
    await lab.until_held_back(more)
    (other,) = lab.give(1, "other")
    await lab.until_run(*running, other)
    assert slots.holders() == {"greedy", "other"}
    lab.end(*running, other)
    await lab.until_run(more)
    assert slots.holders() == {"greedy"}
    lab.end(more)
    await lab.until_run()
    assert slots.holders() == set()


async def test_nothing_is_claimed_ahead_for_slots_whose_long_jobs_began_before_some_were_kept(
    clock: Clock, lab: Lab
) -> None:
    slots = lab.slots
    lab.end(*lab.give(1, "greedy"))  # which takes no time at all: many would be claimed ahead
    await until_true(lambda: slots.room() > SLOTS, "the crew claims ahead")
    running = lab.give(3, "greedy")
    await lab.until_run(*running)
    clock.now += 60.0
    slots.share(True)
    assert slots.room() == 0
    lab.end(running[0])
    await lab.until_run(*running[1:])
    assert slots.room() > 0


async def test_jobs_are_claimed_ahead_again_once_half_of_them_have_begun(lab: Lab) -> None:
    slots = lab.slots
    lab.end(*lab.give(1, "any"))  # which takes no time at all
    await until_true(
        lambda: slots.room() == CLAIM_ROWS_MAX, "as many as possible are claimed ahead"
    )
    held = lab.give(CLAIM_ROWS_MAX + SLOTS + 1, "any")
    await lab.until_run(*held[:SLOTS])
    assert slots.room() == 0
    lab.end(held[0])
    await until_true(lambda: held[SLOTS] in lab.begun, "another one has begun")
    assert slots.room() == CLAIM_ROWS_MAX


async def test_free_slots_have_room_before_the_jobs_ahead_have_begun(
    clock: Clock, lab: Lab
) -> None:
    """Nobody wakes the worker when jobs begin: their room must not depend on it."""
    slots = lab.slots
    (first,) = lab.give(1, "any")
    await lab.until_run(first)
    clock.now += 0.04
    lab.end(first)
    await until_true(lambda: slots.room() == SLOTS + 5, "five are claimed ahead")
    begun = lab.give(3, "any")
    assert slots.room() == 6  # more than half of those ahead have not begun
    await lab.until_run(*begun)
    assert slots.room() == 6


async def test_who_holds_a_slot_counts_once_however_often_slots_come_to_be_kept(lab: Lab) -> None:
    slots = lab.slots
    slots.share(True)
    (first,) = lab.give(1, "first")
    await lab.until_run(first)
    slots.share(False)
    (second,) = lab.give(1, "second")
    await lab.until_run(first, second)
    for shared in (True, True, False, True):
        slots.share(shared)
    assert slots.holders() == {"first", "second"}
    lab.end(first)
    await lab.until_run(second)
    assert slots.holders() == {"second"}
    slots.share(False)
    lab.end(second)
    await lab.until_run()
    slots.share(True)
    assert slots.holders() == set()


def _leases(jobs: Sequence[ClaimedJob]) -> list[int]:
    return [job.lease for job in jobs]


def _job(org: str) -> ClaimedJob:
    uuid = uuid4()
    return ClaimedJob(
        org=org,
        uuid=uuid,
        lane=Lane.STANDARD,
        endpoint="lab.post__hang",
        queue_key="",
        payload=b"{}",
        attempt=1,
        failures=0,
        unreachables=0,
        timeout_seconds=None,
        request_id=None,
        lease=uuid.int,
    )
