"""Shares the look-ups of names among organisations.

Names are the tenants' own, and a name server may let us wait for each of them. So an organisation
has only so many look-ups under way, and fewer as the process fills up: whoever has none can begin
one while there is any place. More of an organisation's wait for their turn, for a moment, and are
refused then. Look-ups of one name at one time are one look-up, and what failed a moment ago is not
asked for again.

What is shared is a process's. Nothing that was found is kept: the guard checks the addresses that
a connection is made to, and those are of that very moment.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from coatcheck.domain.errors import LookUpRefused, ResolverBusy, TooManyLookUps
from coatcheck.egress.addresses import Address
from coatcheck.telemetry import metrics

LOOK_UPS_MAX: Final = 256
"""Under way at one time, of all organisations."""
LOOK_UPS_PER_ORG_MAX: Final = 16
_SHARE_OF_FREE_PLACES: Final = 8
"""An organisation may hold an eighth of the places that are free, and always one: 16 that flood
leave 51 places for others."""
WAITING_PER_ORG_MAX: Final = 256
LOOK_UP_SECONDS_MAX: Final = 5.0
TURN_SECONDS_MAX: Final = 3.0
"""For so long a look-up waits for one of its organisation's to end."""
FAILURE_SECONDS: Final = 5.0
"""For so long a name that was not found, or did not answer, is not asked for again."""
FAILURES_MAX: Final = 4_096
"""Names that are remembered so; the oldest go first."""


class NameNotFound(Exception):
    """The name has no address, or nobody can be asked for it at present."""


Ask = Callable[[str], Awaitable[list[Address]]]
"""Takes a host name; raises NameNotFound. May take for ever, and be cancelled."""


@dataclass(slots=True)
class _UnderWay:
    host: str
    task: asyncio.Task[list[Address]]
    waiting: int = 0


class LookUps:
    """All look-ups of a process."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._under_way: dict[str, _UnderWay] = {}
        self._held: dict[str, int] = {}
        """Places by organisation; none of zero."""
        self._held_in_all = 0
        self._turns: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits for a place, by organisation, the next to be served first."""
        self._failures: dict[str, float] = {}
        """Names that failed, and until when they are taken to fail; in that order."""

    async def addresses(self, host: str, org: str, timeout: float | None) -> list[Address]:
        """All addresses of ``host``. Raises NameNotFound, TimeoutError, or LookUpRefused."""
        async with asyncio.timeout(timeout):
            if host not in self._under_way:
                self._check_failed(host)
                await self._take_turn(org)
                try:
                    self._begin(host, org)
                except BaseException:
                    self._give_back(org)
                    raise
            return await self._answer(self._under_way[host])

    def _begin(self, host: str, org: str) -> None:
        """Begin a look-up on the place that was taken, or give that back if somebody else has
        begun it meanwhile. Raises NameNotFound if they are done, and it failed."""
        self._check_failed(host)
        if host in self._under_way:
            self._give_back(org)
            return
        task = asyncio.create_task(self._look_up(host), name="look-up")
        look_up = self._under_way[host] = _UnderWay(host, task)

        def ended(task: asyncio.Task[list[Address]]) -> None:
            self._forget(look_up)
            self._give_back(org)
            if not task.cancelled():
                task.exception()  # whoever waited for it has seen it

        task.add_done_callback(ended)

    async def _look_up(self, host: str) -> list[Address]:
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS_MAX):
                return await self._ask(host)
        except (NameNotFound, TimeoutError):
            self._note_failed(host)
            raise

    async def _answer(self, look_up: _UnderWay) -> list[Address]:
        look_up.waiting += 1
        try:
            return list(await asyncio.shield(look_up.task))
        finally:
            look_up.waiting -= 1
            if not look_up.waiting and not look_up.task.done():
                # Nobody wants to know any more. Whoever asks now begins anew.
                self._forget(look_up)
                look_up.task.cancel()

    def _forget(self, look_up: _UnderWay) -> None:
        if self._under_way.get(look_up.host) is look_up:
            del self._under_way[look_up.host]

    # Places

    def _may_begin(self, org: str) -> bool:
        free = LOOK_UPS_MAX - self._held_in_all
        share = max(1, min(LOOK_UPS_PER_ORG_MAX, free // _SHARE_OF_FREE_PLACES))
        return free > 0 and self._held.get(org, 0) < share

    def _hold(self, org: str) -> None:
        self._held[org] = self._held.get(org, 0) + 1
        self._held_in_all += 1

    def _give_back(self, org: str) -> None:
        self._held[org] -= 1
        if not self._held[org]:
            del self._held[org]
        self._held_in_all -= 1
        self._serve_turns()

    async def _take_turn(self, org: str) -> None:
        """Wait for a place, and take it. Raises LookUpRefused."""
        if org not in self._turns and self._may_begin(org):
            self._hold(org)
            return
        turns = self._turns.setdefault(org, deque())
        if len(turns) >= WAITING_PER_ORG_MAX:
            raise self._refusal(org)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turns.append(turn)
        try:
            async with asyncio.timeout(TURN_SECONDS_MAX):
                try:
                    await turn
                except asyncio.CancelledError:
                    if turn.done() and not turn.cancelled():
                        self._give_back(org)  # it came at the very moment
                    raise
        except TimeoutError:
            raise self._refusal(org) from None
        finally:
            self._leave_line(org, turn)

    def _leave_line(self, org: str, turn: asyncio.Future[None]) -> None:
        turns = self._turns.get(org)
        if turns is not None:
            if turn in turns:
                turns.remove(turn)
            if not turns:
                del self._turns[org]

    def _serve_turns(self) -> None:
        """Give the free places to those who wait, one organisation after the other."""
        served = True
        while served:
            served = False
            for org in list(self._turns):
                turns = self._turns.pop(org)
                while turns and self._may_begin(org):
                    turn = turns.popleft()
                    if not turn.done():
                        self._hold(org)
                        turn.set_result(None)
                        served = True
                        break
                if turns:
                    self._turns[org] = turns  # behind the others

    def _refusal(self, org: str) -> LookUpRefused:
        if org in self._held:
            metrics.record_bound_met("look_ups_of_org")
            return TooManyLookUps(round(LOOK_UP_SECONDS_MAX))
        metrics.record_bound_met("look_ups")
        return ResolverBusy()

    # Failures

    def _check_failed(self, host: str) -> None:
        until = self._failures.get(host)
        if until is not None and until > asyncio.get_running_loop().time():
            raise NameNotFound(f"{host} had no address a moment ago")

    def _note_failed(self, host: str) -> None:
        self._failures.pop(host, None)
        self._failures[host] = asyncio.get_running_loop().time() + FAILURE_SECONDS
        if len(self._failures) > FAILURES_MAX:
            del self._failures[next(iter(self._failures))]
