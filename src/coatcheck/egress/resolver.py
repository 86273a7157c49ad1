"""Resolves host names, with limits for each organisation and for all together.

``name_servers`` asks; all guards of a process share the limits.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from coatcheck.domain.bounds import CountedBound
from coatcheck.domain.errors import LookUpRefused, ResolverBusy, TooManyLookUps
from coatcheck.egress.urls import Address
from coatcheck.telemetry import metrics

LOOK_UPS_MAX: Final = 256
"""Concurrent look-ups of all organisations."""
LOOK_UPS_PER_ORG_MAX: Final = 16
_SHARE_OF_FREE_SLOTS: Final = 8
"""An organisation may hold an eighth of the free slots, and at least one: 16 organisations that
flood leave 51 slots for others."""
WAITING_PER_ORG_MAX: Final = 256
LOOK_UP_SECONDS_MAX: Final = 5.0
TURN_SECONDS_MAX: Final = 3.0
"""How long a look-up waits for a slot of its organisation."""
FAILURE_SECONDS: Final = 5.0
"""How long a name that failed or timed out is not queried again."""
FAILURES_MAX: Final = 4_096
"""How many failed names are remembered; the oldest are dropped first."""
_LOOK_UPS_OF_ORG: Final = CountedBound(
    "look_ups_of_org",
    of="host names of an organisation that are resolved at a time ([name servers]"
    "(settings.md#coatcheck_dns_servers))",
    over="process",
    value=f"{LOOK_UPS_PER_ORG_MAX}, and at most an eighth of the free places; "
    f"{WAITING_PER_ORG_MAX} more wait for up to {TURN_SECONDS_MAX:g} s; "
    f"{LOOK_UP_SECONDS_MAX:g} s for each name",
    response="a submission or registration: 429 `too_many_look_ups`, `Retry-After`; a webhook or a "
    "call to an upstream or a remote: later, without using an attempt",
)
_LOOK_UPS: Final = CountedBound(
    "look_ups",
    of="host names of all organisations that are resolved at a time",
    over="process",
    value=str(LOOK_UPS_MAX),
    response="a submission or registration: 503 `resolver_busy`, `Retry-After`; a call: later, "
    "without using an attempt",
)


class NameNotFound(Exception):
    """The name has no address, or no name server could be reached."""


Ask = Callable[[str], Awaitable[list[Address]]]
"""Takes a host name; raises NameNotFound. May take forever, and may be cancelled."""


@dataclass(slots=True)
class _UnderWay:
    host: str
    task: asyncio.Task[list[Address]]
    waiting: int = 0


class LookUps:
    """All look-ups of this process. ``clock`` measures how long a name counts as failed."""

    def __init__(self, ask: Ask, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._under_way: dict[str, _UnderWay] = {}
        self._clock = clock
        self._held: dict[str, int] = {}
        """Slots in use by organisation, without zeros."""
        self._held_total = 0
        self._waiters: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiters for a slot by organisation, first in first out."""
        self._failures: dict[str, float] = {}
        """Failed names and the time until which they count as failed, in that order."""

    @property
    def in_use(self) -> int:
        """How many look-ups have a slot or wait for one."""
        return self._held_total + sum(map(len, self._waiters.values()))

    async def addresses(self, host: str, org: str, timeout: float | None) -> list[Address]:
        """All addresses of ``host``. Raises NameNotFound, TimeoutError, or LookUpRefused."""
        async with asyncio.timeout(timeout):
            if host not in self._under_way:
                self._check_failed(host)
                await self._acquire(org)
                try:
                    self._begin(host, org)
                except BaseException:
                    self._release(org)
                    raise
            return await self._answer(self._under_way[host])

    def _begin(self, host: str, org: str) -> None:
        """Start a look-up on the acquired slot, or release the slot if the same look-up was
        started meanwhile. Raises NameNotFound if that one has already failed."""
        self._check_failed(host)
        if host in self._under_way:
            self._release(org)
            return
        task = asyncio.create_task(self._look_up(host), name="look-up")
        look_up = self._under_way[host] = _UnderWay(host, task)

        def ended(task: asyncio.Task[list[Address]]) -> None:
            self._forget(look_up)
            self._release(org)
            if not task.cancelled():
                task.exception()  # marks it as retrieved; the waiters have seen it

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
                # Nobody waits for this any more. The next caller starts a new one.
                self._forget(look_up)
                look_up.task.cancel()

    def _forget(self, look_up: _UnderWay) -> None:
        if self._under_way.get(look_up.host) is look_up:
            del self._under_way[look_up.host]

    # Slots

    def _may_begin(self, org: str) -> bool:
        free = LOOK_UPS_MAX - self._held_total
        share = max(1, min(LOOK_UPS_PER_ORG_MAX, free // _SHARE_OF_FREE_SLOTS))
        return free > 0 and self._held.get(org, 0) < share

    def _hold(self, org: str) -> None:
        self._held[org] = self._held.get(org, 0) + 1
        self._held_total += 1

    def _release(self, org: str) -> None:
        self._held[org] -= 1
        if not self._held[org]:
            del self._held[org]
        self._held_total -= 1
        self._serve_waiters()

    async def _acquire(self, org: str) -> None:
        """Wait for a slot and acquire it. Raises LookUpRefused."""
        if org not in self._waiters and self._may_begin(org):
            self._hold(org)
            return
        waiters = self._waiters.setdefault(org, deque())
        if len(waiters) >= WAITING_PER_ORG_MAX:
            raise self._refusal(org)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.append(waiter)
        try:
            async with asyncio.timeout(TURN_SECONDS_MAX):
                try:
                    await waiter
                except asyncio.CancelledError:
                    if waiter.done() and not waiter.cancelled():
                        self._release(org)  # the slot arrived just as we were cancelled
                    raise
        except TimeoutError:
            raise self._refusal(org) from None
        finally:
            self._stop_waiting(org, waiter)

    def _stop_waiting(self, org: str, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiters.get(org)
        if waiters is not None:
            if waiter in waiters:
                waiters.remove(waiter)
            if not waiters:
                del self._waiters[org]

    def _serve_waiters(self) -> None:
        """Give free slots to waiters, one per organisation in rotation."""
        served = True
        while served:
            served = False
            for org in list(self._waiters):
                waiters = self._waiters.pop(org)
                while waiters and self._may_begin(org):
                    waiter = waiters.popleft()
                    if not waiter.done():
                        self._hold(org)
                        waiter.set_result(None)
                        served = True
                        break
                if waiters:
                    self._waiters[org] = waiters  # to the end of the rotation

    def _refusal(self, org: str) -> LookUpRefused:
        if org in self._held:
            metrics.record_bound_met(_LOOK_UPS_OF_ORG)
            return TooManyLookUps(round(LOOK_UP_SECONDS_MAX))
        metrics.record_bound_met(_LOOK_UPS)
        return ResolverBusy()

    # Failures

    def _check_failed(self, host: str) -> None:
        until = self._failures.get(host)
        if until is not None and until > self._clock():
            raise NameNotFound(f"{host} had no address a moment ago")

    def _note_failed(self, host: str) -> None:
        self._failures.pop(host, None)
        self._failures[host] = self._clock() + FAILURE_SECONDS
        if len(self._failures) > FAILURES_MAX:
            del self._failures[next(iter(self._failures))]


Resolver = Callable[[str, str, float | None], Awaitable[list[Address]]]
"""Takes a host name, the organisation that the look-up counts for, and a timeout in seconds.
Raises NameNotFound, TimeoutError, or LookUpRefused."""

_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, ...], LookUps]] = (
    WeakKeyDictionary()
)


def shared_resolver(servers: Sequence[str] = ()) -> Resolver:
    """The resolver of this process. All guards share its limits.

    ``servers`` are name servers as ``address:port``; without any, the system's are used.
    """
    asked = tuple(servers)

    async def resolve(host: str, org: str, timeout: float | None) -> list[Address]:
        by_servers = _shared.setdefault(asyncio.get_running_loop(), {})
        look_ups = by_servers.get(asked)
        if look_ups is None:
            from coatcheck.egress.name_servers import ask_name_servers  # loads c-ares

            look_ups = by_servers[asked] = LookUps(partial(ask_name_servers, servers=asked))
        return await look_ups.addresses(host, org, timeout)

    return resolve
