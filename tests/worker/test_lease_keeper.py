"""When a worker takes its jobs for lost: in time, and before it says that it is alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from uuid import UUID

import pytest

from coatcheck.core.queries import leases
from coatcheck.db.connection import Connection
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane
from coatcheck.worker import lease
from coatcheck.worker.lease import LeaseRenewer
from tests.worker.conftest import LeaseClock

LOST, RENEWED = "lost", "renewed"


class Kept:
    """A keeper on a database of the test's own, and what it did, in order."""

    def __init__(self, line: Connection) -> None:
        self.did: list[str] = []
        self.keeper = LeaseRenewer(
            line,
            line,
            DEFAULT_POLICIES,
            name="keeper",
            version="1",
            endpoints=[],
            on_cancel=lambda _: None,
            on_lost=lambda lane: self.did.append(f"{LOST} {lane}"),
            on_held_again=lambda: None,
            recording_failed_for=lambda: 0.0,
        )


@pytest.fixture
async def kept(dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kept]:
    line = Connection(dsn, name="keeper")
    made = Kept(line)
    real = leases.heartbeat

    async def heartbeat(line: Connection, boot: int) -> list[UUID]:
        made.did.append(RENEWED)
        return await real(line, boot)

    monkeypatch.setattr(leases, "heartbeat", heartbeat)
    yield made
    await line.close()


@pytest.mark.parametrize("lane", Lane)
async def test_a_lane_is_held_for_two_thirds_of_its_lease_and_no_longer(
    kept: Kept, clock: LeaseClock, lane: Lane
) -> None:
    await kept.keeper.register()
    two_thirds = DEFAULT_POLICIES[lane].ack_seconds * 2 / 3
    assert kept.keeper.holds(lane, clock.now + two_thirds - 0.001)
    assert not kept.keeper.holds(lane, clock.now + two_thirds)


async def test_a_worker_that_slept_through_its_leases_gives_up_before_it_renews(
    kept: Kept, clock: LeaseClock
) -> None:
    await kept.keeper.register()
    await kept.keeper.renew()
    assert kept.did == [RENEWED]
    kept.did.clear()
    # Its clock has gone on while it was stopped.
    clock.now += kept.keeper.longest_seconds
    await kept.keeper.renew()
    assert kept.did == [*(f"{LOST} {lane}" for lane in Lane), RENEWED]


async def test_one_heartbeat_that_hangs_costs_no_lane(
    kept: Kept, clock: LeaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock of the test's own: nobody sleeps, and what hangs is given up at its limit."""
    hangs, over = [True], asyncio.Event()
    limits: list[float] = []

    async def sleep(seconds: float) -> None:
        clock.now += seconds
        await asyncio.sleep(0)

    def timeout(seconds: float) -> asyncio.Timeout:
        limits.append(seconds)
        return asyncio.timeout(None)

    async def heartbeat(_: Connection, __: int) -> list[UUID]:
        if hangs:
            clock.now += limits[-1]
            hangs.clear()
            raise TimeoutError
        kept.did.append(RENEWED)
        over.set()
        return []

    await kept.keeper.register()
    monkeypatch.setattr(lease, "asyncio", SimpleNamespace(sleep=sleep, timeout=timeout))
    monkeypatch.setattr(leases, "heartbeat", heartbeat)
    renewing = asyncio.create_task(kept.keeper.run())
    await over.wait()
    renewing.cancel()
    assert not hangs
    assert set(kept.did) == {RENEWED}
