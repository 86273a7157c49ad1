"""How the look-ups of names are shared among organisations."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from coatcheck.domain.errors import ResolverBusy, TooManyLookUps
from coatcheck.egress import resolver
from coatcheck.egress.resolver import (
    FAILURES_MAX,
    LOOK_UPS_MAX,
    LOOK_UPS_PER_ORG_MAX,
    WAITING_PER_ORG_MAX,
    LookUps,
    NameNotFound,
)
from coatcheck.egress.urls import Address
from coatcheck.telemetry import metrics
from tests.waiting import eventually_async

FOUND = [ipaddress.ip_address("93.184.215.14")]


class Slow:
    """A name service that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._answers: dict[str, asyncio.Future[list[Address]]] = {}
        self.cancelled: list[str] = []

    async def __call__(self, host: str) -> list[Address]:
        self.asked.append(host)
        answer = self._answers[host] = asyncio.get_running_loop().create_future()
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancelled.append(host)
            raise

    def found(self, host: str) -> None:
        self._answers[host].set_result(FOUND)

    def failed(self, host: str) -> None:
        self._answers[host].set_exception(NameNotFound(host))

    async def until_asked(self, number: int) -> None:
        async def look() -> bool:
            return len(self.asked) >= number

        await eventually_async(look, f"{number} names were asked for")


@asynccontextmanager
async def asking(
    looked_up: LookUps, org: str, *hosts: str
) -> AsyncIterator[list[asyncio.Task[list[Address]]]]:
    tasks = [asyncio.create_task(looked_up.addresses(host, org, None)) for host in hosts]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def names(of: str, number: int) -> list[str]:
    return [f"{index}.{of}.example.com" for index in range(number)]


def bounds_met(bound: str) -> float:
    return metrics.REGISTRY.get_sample_value("coatcheck_bounds_met_total", {"bound": bound}) or 0.0


async def test_equal_look_ups_at_one_time_are_one() -> None:
    slow = Slow()
    shared = LookUps(slow)
    async with asking(shared, "a", "x", "x") as first, asking(shared, "b", "x") as second:
        await slow.until_asked(1)
        slow.found("x")
        assert await asyncio.gather(*first, *second) == [FOUND] * 3
    assert slow.asked == ["x"]


async def test_what_was_found_is_not_kept() -> None:
    slow = Slow()
    shared = LookUps(slow)
    for _ in range(2):
        async with asking(shared, "a", "x") as tasks:
            await slow.until_asked(1)
            slow.found("x")
            assert await tasks[0] == FOUND
            slow.asked.clear()


async def test_an_organisation_at_its_limit_holds_up_nobody_else() -> None:
    slow = Slow()
    shared = LookUps(slow)
    flood = names("flood", LOOK_UPS_PER_ORG_MAX + 5)
    async with asking(shared, "flooding", *flood) as flooding:
        await slow.until_asked(LOOK_UPS_PER_ORG_MAX)
        assert slow.asked == flood[:LOOK_UPS_PER_ORG_MAX]
        async with asking(shared, "bystander", "fine") as tasks:
            await slow.until_asked(LOOK_UPS_PER_ORG_MAX + 1)
            slow.found("fine")
            assert await tasks[0] == FOUND
        # As one ends, the next of the organisation's has its turn.
        slow.found(flood[0])
        await flooding[0]
        await slow.until_asked(LOOK_UPS_PER_ORG_MAX + 2)
        assert slow.asked[-1] == flood[LOOK_UPS_PER_ORG_MAX]


async def test_a_name_that_somebody_else_looks_up_needs_no_place_of_ones_own() -> None:
    slow = Slow()
    shared = LookUps(slow)
    async with (
        asking(shared, "flooding", *names("flood", LOOK_UPS_PER_ORG_MAX)),
        asking(shared, "bystander", "shared"),
    ):
        await slow.until_asked(LOOK_UPS_PER_ORG_MAX + 1)
        async with asking(shared, "flooding", "shared") as tasks:
            await asyncio.sleep(0)
            slow.found("shared")
            assert await tasks[0] == FOUND


async def test_who_gets_no_turn_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "TURN_SECONDS_MAX", 0.01)
    slow = Slow()
    shared = LookUps(slow)
    before = bounds_met("look_ups_of_org")
    async with asking(shared, "flooding", *names("flood", LOOK_UPS_PER_ORG_MAX)):
        await slow.until_asked(LOOK_UPS_PER_ORG_MAX)
        with pytest.raises(TooManyLookUps) as refused:
            await shared.addresses("one-more", "flooding", None)
        assert refused.value.retry_after == 5
        assert bounds_met("look_ups_of_org") == before + 1
        assert "one-more" not in slow.asked


async def test_only_so_many_wait_for_their_turn() -> None:
    slow = Slow()
    shared = LookUps(slow)
    most = LOOK_UPS_PER_ORG_MAX + WAITING_PER_ORG_MAX
    async with asking(shared, "flooding", *names("flood", most)):
        await slow.until_asked(LOOK_UPS_PER_ORG_MAX)
        await asyncio.sleep(0)
        with pytest.raises(TooManyLookUps):
            await shared.addresses("one-more", "flooding", None)


async def test_many_organisations_that_flood_leave_places_for_one_that_does_not() -> None:
    slow = Slow()
    shared = LookUps(slow)
    floods = [asking(shared, f"org-{n}", *names(f"org-{n}", 40)) for n in range(16)]
    for flood in floods:
        await flood.__aenter__()
    try:
        await slow.until_asked(LOOK_UPS_MAX - 51)
        await asyncio.sleep(0)
        assert len(slow.asked) == LOOK_UPS_MAX - 51
        async with asking(shared, "bystander", "fine") as tasks:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert slow.asked[-1] == "fine"
            slow.found("fine")
            assert await tasks[0] == FOUND
    finally:
        for flood in floods:
            await flood.__aexit__(None, None, None)
    assert shared.in_use == 0


async def test_when_every_place_is_taken_it_is_nobodys_fault_in_particular(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolver, "TURN_SECONDS_MAX", 0.01)
    slow = Slow()
    shared = LookUps(slow)
    hosts = names("crowd", LOOK_UPS_MAX)
    tasks = [
        asyncio.create_task(shared.addresses(host, f"org-{index}", None))
        for index, host in enumerate(hosts)
    ]
    try:
        await slow.until_asked(LOOK_UPS_MAX)
        before = bounds_met("look_ups")
        with pytest.raises(ResolverBusy):
            await shared.addresses("one-more", "bystander", None)
        assert bounds_met("look_ups") == before + 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_nobody_waits_for_any_more_is_cancelled_and_its_place_free() -> None:
    slow = Slow()
    shared = LookUps(slow)
    async with asking(shared, "a", "x"), asking(shared, "b", "x"):
        await slow.until_asked(1)
        with pytest.raises(TimeoutError):
            await shared.addresses("x", "a", 0.001)
        assert slow.cancelled == []
    await asyncio.sleep(0)
    assert slow.cancelled == ["x"]
    await asyncio.sleep(0)
    assert shared.in_use == 0


async def test_a_name_that_failed_is_not_asked_for_again_at_once() -> None:
    now = 1000.0
    slow = Slow()
    shared = LookUps(slow, clock=lambda: now)
    async with asking(shared, "a", "x") as tasks:
        await slow.until_asked(1)
        slow.failed("x")
        with pytest.raises(NameNotFound):
            await tasks[0]
    with pytest.raises(NameNotFound, match="a moment ago"):
        await shared.addresses("x", "b", None)
    assert slow.asked == ["x"]
    now += resolver.FAILURE_SECONDS  # and the moment is over
    async with asking(shared, "b", "x") as tasks:
        await slow.until_asked(2)
        slow.found("x")
        assert await tasks[0] == FOUND


async def test_a_name_that_does_not_answer_is_given_up_and_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolver, "LOOK_UP_SECONDS_MAX", 0.01)
    slow = Slow()
    shared = LookUps(slow)
    with pytest.raises(TimeoutError):
        await shared.addresses("x", "a", None)
    with pytest.raises(NameNotFound):
        await shared.addresses("x", "a", None)
    assert slow.asked == slow.cancelled == ["x"]


async def test_only_so_many_failures_are_remembered() -> None:
    asked: list[str] = []

    async def nothing(host: str) -> list[Address]:
        asked.append(host)
        raise NameNotFound(host)

    shared = LookUps(nothing)
    oldest, *others = names("flood", FAILURES_MAX + 1)
    for host in (oldest, *others, *others, oldest):
        with pytest.raises(NameNotFound):
            await shared.addresses(host, "a", None)
    assert asked == [oldest, *others, oldest]
