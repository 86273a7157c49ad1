"""Injects the planned faults into a deployment, and records their effects in the history.

A fault without a target (a process that is just being restarted) is recorded with an effect of 0
and does not count. So is a lost commit if nothing was committed meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from chaos.deployment import Deployment
from chaos.history import History
from chaos.member import Member
from chaos.proxy import Proxy
from chaos.schedule import Fault

CONNECTION_SECONDS_MAX: Final = 5.0
_LOOK_SECONDS: Final = 0.05


@dataclass
class _Effect:
    """The size of the effect so far (0: none), and its details."""

    count: int = 0
    detail: dict[str, Any] = field(default_factory=dict)

    def is_of(self, count: int, **detail: object) -> None:
        self.count = count
        self.detail |= detail


class Striker:
    """Executes a plan. ``struck`` counts the faults of each kind that had an effect."""

    def __init__(self, deployment: Deployment, plan: Sequence[Fault], history: History) -> None:
        self._deployment = deployment
        self._plan = plan
        self._history = history
        self.struck: Counter[str] = Counter()

    async def run(self, until: asyncio.Event) -> None:
        """Inject faults until the plan ends or ``until`` is set; then end the active ones."""
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as striking:
            under_way: list[asyncio.Task[None]] = []
            for fault in self._plan:
                left = began + fault.at - asyncio.get_running_loop().time()
                if await _set_within(until, left):
                    break
                under_way.append(striking.create_task(self._strike(fault), name=str(fault)))
            await until.wait()
            for task in under_way:
                task.cancel()

    async def _strike(self, fault: Fault) -> None:
        self._note(fault, "begin")
        effect = _Effect()
        try:
            await self._inflict(fault, effect)
        finally:  # a fault that the end of the run cuts short still had its effect
            self.struck[fault.kind] += effect.count > 0
            self._note(fault, "end", effect=effect.count, detail=effect.detail)

    def _note(self, fault: Fault, phase: str, **more: object) -> None:
        wire = {"wire": fault.detail["wire"]} if "wire" in fault.detail else {}
        self._history.note(
            "fault",
            name=fault.kind,
            target=fault.target,
            number=fault.number,
            phase=phase,
            **wire,
            **more,
        )

    async def _inflict(self, fault: Fault, effect: _Effect) -> None:
        if fault.kind == "kill-postgres":
            await self._kill_postgres(fault, effect)
            return
        member = self._deployment.member(fault.target)
        match fault.kind:
            case "kill-server" | "kill-worker":
                effect.is_of(int(member.pid != 0), pid=member.pid)
                await member.kill()
            case "drain":
                effect.is_of(int(member.pid != 0), pid=member.pid)
                await member.terminate()
            case "pause":
                await _pause(member, fault, effect)
            case "cut":
                await _cut(_proxy(member, fault), fault, effect)
            case "delay":
                await _delay(_proxy(member, fault), fault, effect)
            case "half-open":
                await _half_open(_proxy(member, fault), fault, effect)
            case "lost-commit" | "lost-answer":
                await _lose(_proxy(member, fault), fault, effect)
            case _:
                raise ValueError(f"no such kind of fault: {fault.kind}")

    async def _kill_postgres(self, fault: Fault, effect: _Effect) -> None:
        postgres = self._deployment.postgres
        loop = asyncio.get_running_loop()
        pid = await postgres.kill()
        down = loop.time()
        if pid == 0:
            return
        effect.is_of(1, pid=pid)
        try:
            await asyncio.sleep(fault.seconds)
            await postgres.start()
        finally:
            effect.is_of(effect.count, seconds=round(loop.time() - down, 2))


async def _pause(member: Member, fault: Fault, effect: _Effect) -> None:
    pid = member.pause()
    if pid == 0:
        return
    effect.is_of(1, pid=pid, beyond_lease=fault.detail["beyond_lease"], went_on=False)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        effect.is_of(1, went_on=member.resume(pid))


async def _cut(proxy: Proxy, fault: Fault, effect: _Effect) -> None:
    await _somebody_is_there(proxy)
    rng = random.Random(fault.number)
    effect.is_of(proxy.cut(rng, fault.detail["share"], reset=fault.detail["reset"]))


async def _delay(proxy: Proxy, fault: Fault, effect: _Effect) -> None:
    proxy.delay_seconds = fault.detail["piece_ms"] / 1000
    effect.is_of(len(proxy.links))
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        proxy.delay_seconds = 0.0
        effect.is_of(max(effect.count, len(proxy.links)))


async def _half_open(proxy: Proxy, fault: Fault, effect: _Effect) -> None:
    await _somebody_is_there(proxy)
    effect.is_of(proxy.freeze(new_too=fault.detail["new_too"]), new_too=fault.detail["new_too"])
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        effect.is_of(max(effect.count, proxy.drop_frozen()))


async def _somebody_is_there(proxy: Proxy) -> None:
    """Wait a while for a connection: a starting process has none yet."""
    loop = asyncio.get_running_loop()
    patient_until = loop.time() + CONNECTION_SECONDS_MAX
    while not proxy.links and loop.time() < patient_until:
        await asyncio.sleep(_LOOK_SECONDS)


async def _lose(proxy: Proxy, fault: Fault, effect: _Effect) -> None:
    lost = await proxy.lose_answers(fault.detail["count"], fault.seconds)
    effect.is_of(len(lost), lost=lost)


def _proxy(member: Member, fault: Fault) -> Proxy:
    proxy = member.client_proxy if fault.detail["wire"] == "client" else member.database_proxy
    assert proxy is not None, fault
    return proxy


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    if seconds > 0:
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
    return event.is_set()
