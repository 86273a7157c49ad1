"""Any number of replicas run the maintenance loops; each loop ticks on one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from coatcheck.core import Engine
from coatcheck.domain.states import State
from coatcheck.maintenance import MaintenanceRunner
from coatcheck.maintenance.loop import Loop
from coatcheck.settings import Settings
from tests.all_products import maintenance
from tests.db.blocking import terminate
from tests.db.edge_guard import AsyncpgConnection
from tests.waiting import eventually_async

LOCKS = """
    SELECT l.objid::bigint | l.classid::bigint << 32 AS lock, l.pid
    FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND a.application_name = 'coatcheck maintenance'
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@dataclass
class Ticking:
    """Counts the ticks of a replica's loops, by their names."""

    replica: MaintenanceRunner
    ticks: dict[str, int]

    @classmethod
    def of(cls, settings: Settings) -> Ticking:
        counted = cls(maintenance(settings), {})
        for loop in counted.replica.loops:
            counted.ticks[loop.name] = 0
            counted.count(loop)
        return counted

    def count(self, loop: Loop) -> None:
        tick = loop.tick

        async def counting() -> float:
            self.ticks[loop.name] += 1
            return await tick()

        loop.tick = counting  # type: ignore[method-assign]


@pytest.fixture
def settings(dsn: str, tmp_path: Path) -> Settings:
    return Settings(database_url=dsn, blob_url=(tmp_path / "blobs").as_uri())


@pytest.fixture
async def replicas(settings: Settings) -> AsyncIterator[list[Ticking]]:
    started = [Ticking.of(settings) for _ in range(2)]
    for each in started:
        each.replica.start()
    yield started
    for each in started:
        await each.replica.stop()


def elected(replica: Ticking) -> list[str]:
    """The loops that tick on one replica at a time."""
    return [loop.name for loop in replica.replica.loops if loop.elected]


async def holders(connection: AsyncpgConnection) -> dict[int, int]:
    """Which connection holds which loop's lock."""
    return {row["lock"]: row["pid"] for row in await connection.fetch(LOCKS)}


async def until_all_are_held(connection: AsyncpgConnection, loops: int) -> dict[int, int]:
    async def look() -> dict[int, int] | None:
        held = await holders(connection)
        return held if len(held) == loops else None

    held: dict[int, int] = await eventually_async(look, f"{loops} loops have been elected")
    return held


async def test_each_loop_ticks_on_one_replica_only(
    replicas: list[Ticking], connection: AsyncpgConnection
) -> None:
    loops = len(elected(replicas[0]))
    await until_all_are_held(connection, loops)

    async def quick_loops_have_gone_round() -> bool:
        together = {name: sum(r.ticks[name] for r in replicas) for name in replicas[0].ticks}
        return min(together["stager"], together["rescuer"], together["expirer"]) >= 3

    await eventually_async(quick_loops_have_gone_round, "the quick loops have ticked")
    for name in elected(replicas[0]):
        ticked = [bool(replica.ticks[name]) for replica in replicas]
        assert sum(ticked) == 1, f"{name} ticked on {ticked}"


async def test_when_the_elected_replica_loses_its_connection_another_takes_over(
    replicas: list[Ticking], connection: AsyncpgConnection, settings: Settings
) -> None:
    loops = len(elected(replicas[0]))
    before = await until_all_are_held(connection, loops)
    lost = set(before.values())
    for pid in lost:
        await terminate(connection, pid)

    async def taken_over() -> bool:
        held = await holders(connection)
        return len(held) == loops and not lost & set(held.values())

    await eventually_async(taken_over, "the locks are held on other connections")
    async with Engine(settings) as engine:
        ticket = await engine.submit("demo.post__work", delay=0.05)

        async def staged() -> bool:
            return (await engine.get(ticket.id)).state is State.QUEUED

        await eventually_async(staged, "the stager works again")
