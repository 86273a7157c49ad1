"""The bytes that callers may hold at a time: a share each, and all of them a budget."""

from __future__ import annotations

import asyncio

import pytest

from coatcheck.domain.errors import ServerBusy, TooManyBytesInFlight
from coatcheck.http import memory_budget
from coatcheck.http.memory_budget import (
    ANSWERS,
    SHARE_OF_ONE,
    WAITING_OF_ONE_MAX,
    ByteBudget,
)

TOTAL = 4_000
SHARE = TOTAL // SHARE_OF_ONE
LONG = 60.0


def budget() -> ByteBudget:
    return ByteBudget(ANSWERS, TOTAL, is_of_bodies=False)


async def test_one_caller_gets_a_share_and_leaves_the_rest_to_others() -> None:
    room = budget()
    held = room.reserve_now("a", SHARE)
    with pytest.raises(TooManyBytesInFlight):
        room.reserve_now("a", 1)
    room.reserve_now("b", SHARE)
    held.end()
    room.reserve_now("a", SHARE)


async def test_all_callers_together_get_the_budget() -> None:
    room = budget()
    for name in range(SHARE_OF_ONE):
        room.reserve_now(str(name), SHARE)
    with pytest.raises(ServerBusy):
        room.reserve_now("another", 1)


async def test_what_is_larger_than_a_share_takes_all_of_it() -> None:
    room = budget()
    held = room.reserve_now("a", 10 * TOTAL)
    assert held.size == SHARE
    with pytest.raises(TooManyBytesInFlight):
        room.reserve_now("a", 1)


async def test_what_was_given_back_is_given_back_once() -> None:
    room = budget()
    held = room.reserve_now("a", 100)
    held.resize(30)
    assert room.held_bytes == 30
    held.end()
    held.end()
    assert room.held_bytes == 0


async def test_who_waits_gets_in_as_soon_as_there_is_room_in_order() -> None:
    room = budget()
    held = room.reserve_now("a", SHARE)
    got: list[int] = []

    async def wait(number: int) -> None:
        await room.reserve("a", SHARE, LONG)
        got.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(2)]
    await asyncio.sleep(0)  # they have asked
    held.end()
    await waiting[0]
    assert got == [0]
    waiting[1].cancel()
    await asyncio.gather(waiting[1], return_exceptions=True)
    assert room.held_bytes == SHARE


async def test_a_caller_that_waits_for_its_own_share_is_in_nobodys_way() -> None:
    room = budget()
    room.reserve_now("a", SHARE)
    waiting = asyncio.create_task(room.reserve("a", SHARE, LONG))
    await asyncio.sleep(0)  # it has asked
    await room.reserve("b", SHARE, 0.0)
    assert room.held_bytes == 2 * SHARE
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_who_waits_in_vain_is_refused_and_leaves_nothing_behind() -> None:
    room = budget()
    held = room.reserve_now("a", SHARE)
    with pytest.raises(TooManyBytesInFlight) as refused:
        await room.reserve("a", 1, 0.01)
    assert refused.value.retry_after == memory_budget.RETRY_AFTER_SECONDS
    held.end()
    assert room.held_bytes == 0


async def test_only_so_many_of_one_caller_wait() -> None:
    room = budget()
    room.reserve_now("a", SHARE)
    waiting = [asyncio.create_task(room.reserve("a", 1, LONG)) for _ in range(WAITING_OF_ONE_MAX)]
    await asyncio.sleep(0)  # they have asked
    with pytest.raises(TooManyBytesInFlight):
        await room.reserve("a", 1, LONG)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_one_that_gives_up_in_the_turn_in_which_there_is_room_lets_the_next_in() -> None:
    room = budget()
    held = room.reserve_now("a", SHARE)
    given_up = asyncio.create_task(room.reserve("a", SHARE, LONG))
    patient = asyncio.create_task(room.reserve("a", SHARE // 2, LONG))
    await asyncio.sleep(0)  # they have asked
    given_up.cancel()
    held.end()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    got = await patient
    assert room.held_bytes == got.size == SHARE // 2
    got.end()
    assert room.held_bytes == 0


async def test_the_last_that_waits_leaves_nothing_behind_if_it_gives_up_as_there_is_room() -> None:
    room = budget()
    held = room.reserve_now("a", SHARE)
    given_up = asyncio.create_task(room.reserve("a", SHARE, LONG))
    await asyncio.sleep(0)  # it has asked
    given_up.cancel()
    held.end()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert room.held_bytes == 0
    again = await room.reserve("a", SHARE, LONG)
    assert room.held_bytes == again.size == SHARE


async def test_one_that_gives_up_right_after_it_was_let_in_gives_its_room_to_the_next() -> None:
    room = budget()
    held = room.reserve_now("a", SHARE)
    given_up = asyncio.create_task(room.reserve("a", SHARE, LONG))
    patient = asyncio.create_task(room.reserve("a", SHARE, LONG))
    await asyncio.sleep(0)  # they have asked
    held.end()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    (await patient).end()
    assert room.held_bytes == 0
