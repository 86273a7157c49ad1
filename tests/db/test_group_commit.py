"""The coalescer: who comes while a flush is under way shares the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from coatcheck.db.batcher import Batcher
from tests.waiting import eventually_async


class Flushes:
    """A flush that answers each request with its double, when it is let."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self._may_end = asyncio.Event()
        self._may_end.set()

    async def __call__(self, requests: list[int]) -> Sequence[int | Exception]:
        self.batches.append(requests)
        await self._may_end.wait()
        if 13 in requests:
            raise ConnectionError("the whole batch is lost")
        return [ValueError(f"{n} is odd") if n % 2 else n * 2 for n in requests]

    def hold(self) -> None:
        self._may_end.clear()

    def let_go(self) -> None:
        self._may_end.set()

    async def begun(self, count: int) -> None:
        async def look() -> bool:
            return len(self.batches) >= count

        await eventually_async(look, f"{count} flushes have begun")


@pytest.fixture
async def flushes() -> Flushes:
    return Flushes()


async def test_an_idle_coalescer_sends_at_once(flushes: Flushes) -> None:
    coalescer = Batcher(flushes, rows_max=10)
    assert await coalescer.ask(2) == 4
    assert await coalescer.ask(4) == 8
    assert flushes.batches == [[2], [4]]


async def test_requests_that_come_during_a_flush_share_the_next(flushes: Flushes) -> None:
    coalescer = Batcher(flushes, rows_max=10)
    flushes.hold()
    first = asyncio.create_task(coalescer.ask(0))
    await flushes.begun(1)
    rest = [asyncio.create_task(coalescer.ask(n)) for n in (2, 4, 6)]
    await asyncio.sleep(0)
    flushes.let_go()
    assert await asyncio.gather(first, *rest) == [0, 4, 8, 12]
    assert flushes.batches == [[0], [2, 4, 6]]


async def test_no_flush_is_larger_than_its_bound(flushes: Flushes) -> None:
    coalescer = Batcher(flushes, rows_max=3)
    answers = await asyncio.gather(*(coalescer.ask(n) for n in range(0, 16, 2)))
    assert answers == [n * 2 for n in range(0, 16, 2)]
    assert [len(batch) for batch in flushes.batches] == [3, 3, 2]


async def test_an_answer_that_is_an_error_goes_to_its_own_caller(flushes: Flushes) -> None:
    coalescer = Batcher(flushes, rows_max=10)
    answers = await asyncio.gather(*(coalescer.ask(n) for n in (2, 3, 4)), return_exceptions=True)
    assert answers[0] == 4
    assert str(answers[1]) == "3 is odd"
    assert answers[2] == 8
    assert len(flushes.batches) == 1


async def test_a_flush_that_fails_fails_its_batch_and_no_other(flushes: Flushes) -> None:
    coalescer = Batcher(flushes, rows_max=2)
    answers = await asyncio.gather(
        *(coalescer.ask(n) for n in (2, 13, 4, 6)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [ConnectionError, ConnectionError, int, int]


async def test_a_caller_that_gives_up_disturbs_nobody(flushes: Flushes) -> None:
    coalescer = Batcher(flushes, rows_max=10)
    flushes.hold()
    asked = [asyncio.create_task(coalescer.ask(n)) for n in (0, 2, 4, 6)]
    await flushes.begun(1)
    late = [asyncio.create_task(coalescer.ask(n)) for n in (8, 10)]
    await asyncio.sleep(0)
    asked[1].cancel()  # in flight
    late[0].cancel()  # still waiting
    flushes.let_go()
    answers = await asyncio.gather(*asked, *late, return_exceptions=True)
    assert [answer for answer in answers if not isinstance(answer, asyncio.CancelledError)] == [
        0,
        8,
        12,
        20,
    ]


async def test_draining_waits_for_every_answer(flushes: Flushes) -> None:
    coalescer = Batcher(flushes, rows_max=1)
    asked = [asyncio.create_task(coalescer.ask(n)) for n in (0, 2, 4)]
    await flushes.begun(1)
    await coalescer.drain()
    assert [await each for each in asked] == [0, 4, 8]


async def test_with_two_flights_the_third_caller_waits_for_the_first_to_land(
    flushes: Flushes,
) -> None:
    coalescer = Batcher(flushes, rows_max=10, flights=2)
    flushes.hold()
    asked = []
    for count, number in enumerate((0, 2), start=1):
        asked.append(asyncio.create_task(coalescer.ask(number)))
        await flushes.begun(count)
    asked += [asyncio.create_task(coalescer.ask(number)) for number in (4, 6)]
    await asyncio.sleep(0)
    assert flushes.batches == [[0], [2]]
    flushes.let_go()
    assert await asyncio.gather(*asked) == [0, 4, 8, 12]
    assert flushes.batches == [[0], [2], [4, 6]]


async def test_a_caller_that_was_just_answered_can_ask_again_at_once(flushes: Flushes) -> None:
    for flights in (1, 2):
        coalescer = Batcher(flushes, rows_max=10, flights=flights)
        assert [await coalescer.ask(number) for number in range(0, 20, 2)] == list(range(0, 40, 4))
