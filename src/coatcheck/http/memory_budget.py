"""How many bytes the bodies and the large answers of all callers may hold at a time.

A caller decides how slowly it sends a body and how slowly it reads an answer, and so for how long
the server holds either. Without a bound the memory of a process is any caller's. So each process
has a budget for bodies and one for answers. One organisation gets a share of a budget and no more:
one whose bodies all trickle leaves room for the others. Callers without a credential have a small
budget of their own, shared out by address.

Who finds no room waits for a moment: its body is not read meanwhile, so TCP holds it back. Then it
is refused, and told when to come again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from coatcheck.domain.errors import ServerBusy, TooManyBytesInFlight
from coatcheck.telemetry import metrics

SHARE_OF_ONE: Final = 4
"""The part of a budget that one organisation (or address) may take: a quarter."""
UNKNOWN_CALLERS: Final = 16
"""The part of the bodies' budget that callers without a credential have: a sixteenth."""
BODY_WAIT_SECONDS_MAX: Final = 5.0
ANSWER_WAIT_SECONDS_MAX: Final = 5.0
WAITING_OF_ONE_MAX: Final = 100
"""Requests of one organisation that wait for room; more are refused at once."""
RETRY_AFTER_SECONDS: Final = 5


class _Waiting(NamedTuple):
    size: int
    granted: asyncio.Future[None]


class Reservation:
    """Bytes of a budget that somebody holds. ``end`` gives them back; more than once is no harm."""

    __slots__ = ("_budget", "_owner", "size")

    def __init__(self, budget: ByteBudget, owner: str, size: int) -> None:
        self._budget = budget
        self._owner = owner
        self.size = size

    def resize(self, size: int) -> None:
        """Hold so many from now on; there may be more than was reserved, when they are there."""
        size = self._budget.at_most_a_share(size)
        self._budget.give_back(self._owner, self.size - size)
        self.size = size

    def end(self) -> None:
        self.resize(0)


class ByteBudget:
    """Bytes that callers share, each up to a share of them."""

    def __init__(self, name: str, bytes_max: int, *, is_of_bodies: bool) -> None:
        """``name`` is the bound's, in docs/reference/bounds.md."""
        self._name = name
        self._bytes_max = bytes_max
        self._share_max = bytes_max // SHARE_OF_ONE
        self._is_of_bodies = is_of_bodies
        self._held: dict[str, int] = {}
        self._held_in_all = 0
        self._waiting: dict[str, deque[_Waiting]] = {}

    @property
    def held_bytes(self) -> int:
        return self._held_in_all

    def at_most_a_share(self, size: int) -> int:
        """``size`` as it is counted: what is larger than a share takes all of it."""
        return min(size, self._share_max)

    def reserve_now(self, owner: str, size: int) -> Reservation:
        """Raises TooManyBytesInFlight or ServerBusy if there is no room at this moment."""
        size = self.at_most_a_share(size)
        if not self._fits(owner, size):
            raise self._refusal(owner, size)
        self._take(owner, size)
        return Reservation(self, owner, size)

    async def reserve(self, owner: str, size: int, wait_seconds: float) -> Reservation:
        """The same, once there is room. Raises if there is none in time."""
        size = self.at_most_a_share(size)
        if owner not in self._waiting and self._fits(owner, size):
            self._take(owner, size)
        else:
            await self._granted(owner, size, wait_seconds)
        return Reservation(self, owner, size)

    async def _granted(self, owner: str, size: int, wait_seconds: float) -> None:
        line = self._waiting.setdefault(owner, deque())
        if len(line) >= WAITING_OF_ONE_MAX:
            raise self._refusal(owner, size)
        waiting = _Waiting(size, asyncio.get_running_loop().create_future())
        line.append(waiting)
        try:
            async with asyncio.timeout(wait_seconds):
                await waiting.granted
        except BaseException as error:
            if waiting.granted.done() and not waiting.granted.cancelled():
                self.give_back(owner, size)  # granted in the moment in which it was given up
            else:
                self._leave(owner, waiting)
            if isinstance(error, TimeoutError):
                raise self._refusal(owner, size) from None
            raise

    def _leave(self, owner: str, waiting: _Waiting) -> None:
        line = self._waiting.get(owner, deque())
        if waiting in line:
            line.remove(waiting)
        if not line:
            self._waiting.pop(owner, None)

    def give_back(self, owner: str, size: int) -> None:
        """Take back so many bytes, and let in whoever has room now."""
        if size == 0:
            return
        self._take(owner, -size)
        if size > 0 and self._waiting:
            self._let_in()

    def _let_in(self) -> None:
        """Each organisation's requests in their order; the organisations in turn."""
        for owner in [*self._waiting]:
            line = self._waiting.pop(owner)
            while line and (line[0].granted.done() or self._fits(owner, line[0].size)):
                waiting = line.popleft()
                if waiting.granted.done():
                    continue  # given up in this turn of the loop
                self._take(owner, waiting.size)
                waiting.granted.set_result(None)
            if line:
                self._waiting[owner] = line

    def _fits(self, owner: str, size: int) -> bool:
        return (
            self._held_in_all + size <= self._bytes_max
            and self._held.get(owner, 0) + size <= self._share_max
        )

    def _take(self, owner: str, size: int) -> None:
        self._held_in_all += size
        held = self._held.get(owner, 0) + size
        if held:
            self._held[owner] = held
        else:
            self._held.pop(owner, None)

    def _refusal(self, owner: str, size: int) -> TooManyBytesInFlight | ServerBusy:
        metrics.record_bound_met(self._name)
        what = "bodies" if self._is_of_bodies else "large answers"
        if self._held.get(owner, 0) + size > self._share_max:
            return TooManyBytesInFlight(
                RETRY_AFTER_SECONDS,
                f"The {what} of this caller that are under way hold as many bytes as one caller's "
                "may; see Retry-After.",
                body_is_unread=self._is_of_bodies,
            )
        return ServerBusy(
            RETRY_AFTER_SECONDS,
            f"The {what} that are under way hold as many bytes as the server has room for; see "
            "Retry-After.",
            body_is_unread=self._is_of_bodies,
        )


class BodyBudget:
    """The budgets of bodies: of callers with a credential, and of the others."""

    def __init__(self, bytes_max: int) -> None:
        self._known = ByteBudget("bodies", bytes_max, is_of_bodies=True)
        self._unknown = ByteBudget(
            "bodies_without_credential", bytes_max // UNKNOWN_CALLERS, is_of_bodies=True
        )

    @property
    def held_bytes(self) -> int:
        return self._known.held_bytes + self._unknown.held_bytes

    async def reserve(self, org: str | None, address: str, size: int) -> Reservation:
        """Room for a body of an organisation; or of whoever calls from there, if ``org`` is None.

        Raises TooManyBytesInFlight or ServerBusy.
        """
        if org is None:
            return await self._unknown.reserve(address, size, BODY_WAIT_SECONDS_MAX)
        return await self._known.reserve(org, size, BODY_WAIT_SECONDS_MAX)
