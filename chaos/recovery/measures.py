"""The recovery measurements: each is a row of the table, with its target."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos.recovery.laboratory import LANES, laboratory, now, under_up

LEASES: Final = {"urgent": 3.0, "standard": 4.0, "bulk": 6.0}
DEFAULT_LEASES: Final = {"urgent": 30.0, "standard": 120.0, "bulk": 300.0}
RECLAIM_GRACE_SECONDS: Final = 2.0
KNOWN_DEAD_SECONDS: Final = 5.0
HEALTHY_SECONDS: Final = 31.0
FIRST_CLAIM_SECONDS: Final = 5.0
STALL_SECONDS: Final = 20.0
DOWN_SECONDS: Final = (0.0, 5.0, 20.0)
QUEUE: Final = 300
"""More than all workers can hold: jobs wait when PostgreSQL dies, and when it is back."""


@dataclass
class Measure:
    """Seconds, one for each round; ``limit`` is the allowed maximum."""

    name: str
    limit: float | None
    seconds: list[float] = field(default_factory=list)
    unit: str = "s"

    @property
    def met(self) -> bool:
        return self.limit is None or max(self.seconds) <= self.limit

    def row(self) -> list[str]:
        figures = [min(self.seconds), statistics.median(self.seconds), max(self.seconds)]
        target = "" if self.limit is None else f"≤ {self.limit:g}"
        verdict = "" if self.limit is None else "met" if self.met else "MISSED"
        shown = [f"{figure:.2f}" if self.unit == "s" else f"{figure:g}" for figure in figures]
        return [self.name, str(len(self.seconds)), *shown, target, verdict]


def leases(seconds: dict[str, float]) -> str:
    return ",".join(f"{lane}={value:g}" for lane, value in seconds.items())


async def worker_killed_under_up(
    folder: Path, rounds: int, say: Callable[[str], None]
) -> list[Measure]:
    """kill -9 of the worker of a ``coatcheck up``, until its successor has restarted its jobs."""
    measures = {
        lane: Measure(
            f"worker of `up` killed, job begun again ({lane}, lease {seconds:g} s)",
            KNOWN_DEAD_SECONDS,
        )
        for lane, seconds in DEFAULT_LEASES.items()
    }
    async with under_up(folder, graphs_concurrency="0") as caller:
        for number in range(rounds):
            held = {lane: await caller.submit("slow", lane, seconds=3_600.0) for lane in LANES}
            await asyncio.gather(*(caller.executed(job, 1) for job in held.values()))
            (pid,) = {caller.executions(job)[0] for job in held.values()}
            killed_at = now()
            os.kill(pid, signal.SIGKILL)
            for lane, job in held.items():
                measures[lane].seconds.append(await caller.executed(job, 2) - killed_at)
            taken = ", ".join(f"{lane} {each.seconds[-1]:.2f} s" for lane, each in measures.items())
            say(f"worker of `up` killed, round {number + 1}: {taken}")
            for job in held.values():
                await caller.cancel(job)
            # A process killed soon after its start is restarted later.
            await asyncio.sleep(HEALTHY_SECONDS)
    return list(measures.values())


async def worker_killed_beside_another(
    folder: Path, rounds: int, say: Callable[[str], None]
) -> list[Measure]:
    """kill -9 of a single worker, until another one on the host has restarted its jobs."""
    measures = {
        lane: Measure(
            f"worker killed, its job begun by one beside it ({lane}, lease {seconds:g} s)",
            KNOWN_DEAD_SECONDS,
        )
        for lane, seconds in DEFAULT_LEASES.items()
    }
    return await _killed(folder, rounds, say, measures, DEFAULT_LEASES, hidden=False)


async def worker_killed_unseen(
    folder: Path, rounds: int, say: Callable[[str], None]
) -> list[Measure]:
    """The same without proof of its death, as on another machine: its lease must end."""
    measures = {
        lane: Measure(
            f"worker of another machine killed, job begun again ({lane}, lease {seconds:g} s)",
            seconds + RECLAIM_GRACE_SECONDS,
        )
        for lane, seconds in LEASES.items()
    }
    return await _killed(folder, rounds, say, measures, LEASES, hidden=True)


async def _killed(
    folder: Path,
    rounds: int,
    say: Callable[[str], None],
    measures: dict[str, Measure],
    ack_seconds: dict[str, float],
    *,
    hidden: bool,
) -> list[Measure]:
    """kill -9 of the worker that holds a job of each lane, until another has restarted it."""
    moved, number = Measure("jobs of them that had moved on before (not counted)", None, unit=""), 0
    async with laboratory(folder, workers=2, lane_ack_seconds=leases(ack_seconds)) as lab:
        first, second = lab.deployment.workers
        await second.kill(stay_down=True)
        while min(len(measure.seconds) for measure in measures.values()) < rounds:
            number += 1
            # There is no other worker yet, so the first one gets all of them.
            held = {lane: await lab.submit("slow", lane, seconds=60.0) for lane in LANES}
            await asyncio.gather(*(lab.executed(job, 1) for job in held.values()))
            await second.start()
            await lab.deployment.up()
            if hidden:
                await lab.hide_workers()
            # On a machine too busy for short leases, a lease may end before the kill.
            begun = {lane: lab.executions(job) for lane, job in held.items()}
            counted = [lane for lane, pids in begun.items() if pids[-1] == first.pid]
            moved.seconds.append(len(LANES) - len(counted))
            killed_at = now()
            await first.kill(stay_down=True)
            for lane in counted:
                again_at = await lab.executed(held[lane], len(begun[lane]) + 1)
                measures[lane].seconds.append(again_at - killed_at)
            taken = ", ".join(f"{lane} {measures[lane].seconds[-1]:.2f} s" for lane in counted)
            say(f"worker killed, round {number}: {taken or 'none was held'}")
            first, second = second, first
            for job in held.values():
                await lab.cancel(job)
            await lab.ended(list(held.values()))
    return [*measures.values(), moved]


async def restarted_database(
    folder: Path, rounds: int, say: Callable[[str], None]
) -> list[Measure]:
    """kill -9 and restart of PostgreSQL, until the first claim, while jobs wait."""
    measures = {
        down: Measure(f"PostgreSQL back after {down:g} s away, first claim", FIRST_CLAIM_SECONDS)
        for down in DOWN_SECONDS
    }
    async with laboratory(folder, workers=3, lane_ack_seconds=leases(DEFAULT_LEASES)) as lab:
        for number in range(rounds):
            for down, measure in measures.items():
                while await lab.queued() < QUEUE // 3:
                    await asyncio.gather(
                        *(lab.submit("slow", "standard", seconds=5.0) for _ in range(QUEUE))
                    )
                await lab.deployment.postgres.kill()
                await asyncio.sleep(down)
                starting = asyncio.create_task(lab.deployment.postgres.start())
                back_at = await lab.until_it_takes_connections()
                measure.seconds.append(await lab.first_claim_after(back_at))
                await starting
                say(f"{measure.name}, round {number + 1}: {measure.seconds[-1]:.2f} s")
                await lab.deployment.up()
    return list(measures.values())


async def stalled_database(folder: Path, rounds: int, say: Callable[[str], None]) -> list[Measure]:
    """All processes of PostgreSQL are stopped for 20 s while jobs run, and then continued.

    With the usual leases no job may be rescued: that would be a mistake. A worker stops jobs whose
    lease may be lost by its own clock, at two thirds of the lease. For the urgent lane, with 30 s,
    that may happen, and is not a rescue.
    """
    async with laboratory(folder, workers=2, lane_ack_seconds=leases(DEFAULT_LEASES)) as lab:
        rescued = Measure(f"jobs rescued by mistake in a stall of {STALL_SECONDS:g} s", 0, unit="")
        rerun = Measure("jobs of standard and bulk begun a second time by it", 0, unit="")
        given_back = Measure("urgent jobs given back by their worker (of 2)", None, unit="")
        for number in range(rounds):
            held = {
                (lane, n): await lab.submit("slow", lane, seconds=STALL_SECONDS + 5.0)
                for lane in LANES
                for n in range(2)
            }
            await asyncio.gather(*(lab.executed(job, 1) for job in held.values()))
            lab.deployment.postgres.pause()
            await asyncio.sleep(STALL_SECONDS)
            lab.deployment.postgres.resume()
            await lab.ended(list(held.values()))
            fates = {key: await lab.fate(job) for key, job in held.items()}
            patient = [fate for (lane, _), fate in fates.items() if lane != "urgent"]
            urgent = [fate for (lane, _), fate in fates.items() if lane == "urgent"]
            rescued.seconds.append(sum(fate.crashes for fate in fates.values()))
            rerun.seconds.append(sum(fate.claims - 1 for fate in patient))
            given_back.seconds.append(sum(fate.interruptions for fate in urgent))
            say(
                f"stall, round {number + 1}: {rescued.seconds[-1]:g} rescued, "
                f"{given_back.seconds[-1]:g} given back"
            )
    return [rescued, rerun, given_back]


async def stall_beyond_the_lease(
    folder: Path, rounds: int, say: Callable[[str], None]
) -> list[Measure]:
    """The same with leases far shorter than the stall: each job runs again, and only once."""
    async with laboratory(folder, workers=2, lane_ack_seconds=leases(LEASES)) as lab:
        claims = Measure(
            f"claims of a job, lease shorter than a {STALL_SECONDS:g} s stall", 2, unit=""
        )
        again = Measure("stall over, stopped job begun again", FIRST_CLAIM_SECONDS)
        for number in range(rounds):
            held = [await lab.submit("slow", lane, seconds=STALL_SECONDS + 5.0) for lane in LANES]
            await asyncio.gather(*(lab.executed(job, 1) for job in held))
            lab.deployment.postgres.pause()
            await asyncio.sleep(STALL_SECONDS)
            resumed_at = now()
            lab.deployment.postgres.resume()
            for job in held:
                again.seconds.append(await lab.executed(job, 2) - resumed_at)
            await lab.ended(held)
            fates = [await lab.fate(job) for job in held]
            claims.seconds += [fate.claims for fate in fates]
            say(f"long stall, round {number + 1}: {fates}")
    return [claims, again]


Measuring = Callable[[Path, int, Callable[[str], None]], Awaitable[Sequence[Measure]]]

MEASUREMENTS: Final[dict[str, Measuring]] = {
    "up": worker_killed_under_up,
    "worker": worker_killed_beside_another,
    "unseen": worker_killed_unseen,
    "postgres": restarted_database,
    "stall": stalled_database,
    "long-stall": stall_beyond_the_lease,
}
