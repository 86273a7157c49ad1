"""The slots of a lane, and those kept for organisations that hold none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import uuid4

import pytest

from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.worker import slots as crew_module
from coatcheck.worker.slots import Crew
from tests.worker.workshop import until_true

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
        self.crew = Crew(SLOTS, self._run, reserved=KEPT)
        self.begun: list[ClaimedJob] = []
        self._ends: dict[int, asyncio.Event] = {}

    async def _run(self, job: ClaimedJob) -> None:
        self.begun.append(job)
        try:
            await self._ends.setdefault(job.lease, asyncio.Event()).wait()
        finally:
            self.begun.remove(job)

    def give(self, count: int, org: str) -> list[ClaimedJob]:
        jobs = [_job(org) for _ in range(count)]
        self.crew.give(jobs)
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
                self.crew.leases() == set(_leases(jobs))
                and self.crew.room_for_newcomers() == SLOTS - len(self.begun)
            ),
            "these are held back",
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(crew_module, "time", clock)
    return clock


@pytest.fixture
async def lab(clock: Clock) -> AsyncIterator[Lab]:
    lab = Lab()
    yield lab
    await lab.crew.close()


async def test_jobs_that_are_held_back_and_move_on_are_not_given_back(
    clock: Clock, lab: Lab
) -> None:
    crew = lab.crew
    crew.share(True)
    jobs = lab.give(7, "greedy")
    await lab.until_run(*jobs[:3])
    await lab.until_held_back(*jobs[3:])
    for number in range(3):  # together longer than any may be held back
        clock.now += 0.75
        assert crew.take_back_stuck(clock.now) == []
        lab.end(jobs[number])
        await lab.until_run(*jobs[number + 1 : number + 4])
        await lab.until_held_back(*jobs[number + 4 :])
    assert crew.take_back_stuck(clock.now + 0.75) == []


async def test_jobs_that_are_held_back_and_move_on_no_more_are_given_back(
    clock: Clock, lab: Lab
) -> None:
    lab.crew.share(True)
    jobs = lab.give(6, "greedy")
    await lab.until_run(*jobs[:3])
    await lab.until_held_back(*jobs[3:])
    clock.now += 0.75
    lab.end(jobs[0])
    await lab.until_run(*jobs[1:4])
    assert lab.crew.take_back_stuck(clock.now + 0.75) == []
    assert lab.crew.take_back_stuck(clock.now + 1.0) == jobs[4:]
    assert lab.crew.leases() == set()


async def test_who_began_before_slots_were_kept_holds_a_slot_afterwards(lab: Lab) -> None:
    crew = lab.crew
    running = lab.give(3, "greedy")
    await lab.until_run(*running)
    crew.share(True)
    assert crew.holders() == {"greedy"}
    (more,) = lab.give(1, "greedy")
    await lab.until_held_back(more)
    (other,) = lab.give(1, "other")
    await lab.until_run(*running, other)
    assert crew.holders() == {"greedy", "other"}
    lab.end(*running, other)
    await lab.until_run(more)
    assert crew.holders() == {"greedy"}
    lab.end(more)
    await lab.until_run()
    assert crew.holders() == set()


async def test_nothing_is_claimed_ahead_for_slots_whose_long_jobs_began_before_some_were_kept(
    clock: Clock, lab: Lab
) -> None:
    crew = lab.crew
    lab.end(*lab.give(1, "greedy"))  # which takes no time at all: many would be claimed ahead
    await until_true(lambda: crew.room() > SLOTS, "the crew claims ahead")
    running = lab.give(3, "greedy")
    await lab.until_run(*running)
    clock.now += 60.0
    crew.share(True)
    assert crew.room() == 0
    lab.end(running[0])
    await lab.until_run(*running[1:])
    assert crew.room() > 0


async def test_who_holds_a_slot_counts_once_however_often_slots_come_to_be_kept(lab: Lab) -> None:
    crew = lab.crew
    crew.share(True)
    (first,) = lab.give(1, "first")
    await lab.until_run(first)
    crew.share(False)
    (second,) = lab.give(1, "second")
    await lab.until_run(first, second)
    for shared in (True, True, False, True):
        crew.share(shared)
    assert crew.holders() == {"first", "second"}
    lab.end(first)
    await lab.until_run(second)
    assert crew.holders() == {"second"}
    crew.share(False)
    lab.end(second)
    await lab.until_run()
    crew.share(True)
    assert crew.holders() == set()


def _leases(jobs: Sequence[ClaimedJob]) -> list[int]:
    return [job.lease for job in jobs]


def _job(org: str) -> ClaimedJob:
    uuid = uuid4()
    return ClaimedJob(
        org=org,
        uuid=uuid,
        lane=Lane.STANDARD,
        endpoint="lab.post__hang",
        flow="",
        payload=b"{}",
        attempt=1,
        failures=0,
        unreachables=0,
        timeout_seconds=None,
        request_id=None,
        lease=uuid.int,
    )
