"""Runs an attack next to an innocent tenant, and measures both."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chaos.abuse.attack import Attack, Figures
from chaos.abuse.bystander import KINDS, Bystander
from chaos.abuse.target import BYSTANDER, Memory, Target
from chaos.member import ROOT

BASELINE_SECONDS: Final = 3.0
RECOVERED_SECONDS: Final = 0.5
"""A bystander served as before for this long counts as recovered."""
RECOVERY_SECONDS_MAX: Final = 120.0
SLOW_MILLISECONDS: Final = 100.0
"""Answers within this time are not slow, however fast they were before."""


@dataclass(frozen=True)
class Measured:
    """An attack's row: memory in MiB, a bystander's latency in milliseconds."""

    attack: Attack
    figures: Figures
    memory: tuple[int, int, int]
    before: dict[str, dict[str, Any]]
    during: dict[str, dict[str, Any]]
    recovery_seconds: float | None
    complaints: list[str]


async def attacked(attack: Attack, folder: Path, *, source: Path = ROOT) -> Measured:
    """The complete attack, with a bystander."""
    async with (
        Target(folder, source=source, **attack.settings) as target,
        Bystander(target.url, target.keys[BYSTANDER], BYSTANDER) as bystander,
    ):
        await asyncio.sleep(BASELINE_SECONDS)
        before = await bystander.figures()
        with Memory(target.pid(attack.victim)) as memory:
            figures = await attack.run(target)
            during = await bystander.figures()
        recovery = await _recovered(bystander, before)
    figures = {**figures, "rss_growth_mib": memory.growth}
    return Measured(
        attack,
        figures,
        (memory.before, memory.peak, memory.after),
        before,
        during,
        recovery,
        attack.complaints(figures),
    )


async def attacked_shortly(attack: Attack, folder: Path, dsn: str) -> Figures:
    """For a test: few clients, no bystander, no measured times."""
    async with Target(folder, short=True, dsn=dsn, **attack.settings) as target:
        with Memory(target.pid(attack.victim)) as memory:
            figures = await attack.run(target)
    return {**figures, "rss_growth_mib": memory.growth}


async def _recovered(bystander: Bystander, before: dict[str, dict[str, Any]]) -> float | None:
    """Seconds until a bystander is served as before; None if that takes too long."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < RECOVERY_SECONDS_MAX:
        await asyncio.sleep(RECOVERED_SECONDS)
        now = await bystander.figures()
        if all(_well(now[kind], before[kind]) for kind in KINDS):
            return waited
    return None


def _well(now: dict[str, Any], before: dict[str, Any]) -> bool:
    if now["failed"] or not now["answered"]:
        return False
    return bool(now["p50"] <= max(SLOW_MILLISECONDS, 2 * (before["p99"] or 0)))
