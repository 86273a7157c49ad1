"""When a worker takes its jobs for lost: in time, and before it says that it is alive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from uuid import UUID

import pytest

from coatcheck.core.queries import leases
from coatcheck.db.connection import Connection
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane
from coatcheck.worker import lease
from coatcheck.worker.lease import LeaseRenewer

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
    kept: Kept, lane: Lane
) -> None:
    before = time.monotonic()
    await kept.keeper.register()
    after = time.monotonic()
    two_thirds = DEFAULT_POLICIES[lane].ack_seconds * 2 / 3
    assert kept.keeper.holds(lane, before + two_thirds - 0.001)
    assert not kept.keeper.holds(lane, after + two_thirds)


async def test_a_worker_that_slept_through_its_leases_gives_up_before_it_renews(kept: Kept) -> None:
    await kept.keeper.register()
    await kept.keeper.renew()
    assert kept.did == [RENEWED]
    kept.did.clear()
    # Its clock has gone on while it was stopped.
    kept.keeper._renewed_at -= kept.keeper.longest_seconds
    await kept.keeper.renew()
    assert kept.did == [*(f"{LOST} {lane}" for lane in Lane), RENEWED]


async def test_one_heartbeat_that_hangs_costs_no_lane(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock of the test's own: nobody sleeps, and what hangs is given up at its limit."""
    now, hangs, over = 1000.0, [True], asyncio.Event()

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        await asyncio.sleep(0)

    async def heartbeat(_: Connection, __: int) -> list[UUID]:
        nonlocal now
        if hangs:
            now += kept.keeper._heartbeat_timeout(now)
            hangs.clear()
            raise TimeoutError
        kept.did.append(RENEWED)
        over.set()
        return []

    await kept.keeper.register()
    monkeypatch.setattr(lease, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(lease, "asyncio", SimpleNamespace(sleep=sleep, timeout=asyncio.timeout))
    monkeypatch.setattr(leases, "heartbeat", heartbeat)
    kept.keeper._renewed_at = now
    renewing = asyncio.create_task(kept.keeper.run())
    await over.wait()
    renewing.cancel()
    assert not hangs
    assert set(kept.did) == {RENEWED}
