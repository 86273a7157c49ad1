"""Turns: so many at once, and so many of each."""

from __future__ import annotations

import asyncio

from coatcheck.core.remote.finalizer import KeyedSemaphore


async def test_one_who_is_slow_holds_up_only_its_own() -> None:
    turns = KeyedSemaphore(total_max=3, per_key_max=2)
    inside: list[str] = []
    go_on = asyncio.Event()

    async def do(name: str) -> None:
        async with turns.hold(name):
            inside.append(name)
            await go_on.wait()

    tasks = [asyncio.create_task(do(name)) for name in ("slow", "slow", "slow", "other")]
    for _ in range(10):
        await asyncio.sleep(0)
    assert sorted(inside) == ["other", "slow", "slow"]
    go_on.set()
    await asyncio.gather(*tasks)
    assert sorted(inside) == ["other", "slow", "slow", "slow"]


async def test_nothing_is_remembered_of_who_is_done() -> None:
    turns = KeyedSemaphore(total_max=3, per_key_max=2)
    async with turns.hold("a"):
        pass
    assert turns.in_use == 0
