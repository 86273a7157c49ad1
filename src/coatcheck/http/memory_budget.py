"""Memory budgets: bound the bytes of all request bodies and large responses in flight.

A caller decides how slowly it sends a body and how slowly it reads a response, and so for how long
the server keeps either in memory. Without a bound any caller could exhaust the process. So each
process has a budget for bodies and one for responses. One organisation gets at most a share of a
budget: an organisation with slow uploads leaves room for the others. Callers without a credential
have a small separate budget, shared by address.

A request that finds no room waits for a moment. Its body is not read meanwhile, so TCP holds it
back. Then it is refused, with a Retry-After.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from coatcheck.domain.bounds import CountedBound
from coatcheck.domain.errors import ServerBusy, TooManyBytesInFlight
from coatcheck.telemetry import metrics

MEMORY_MB_MIN: Final = 128
"""The smallest budget: the largest body and the largest result must fit into the share of one."""
SHARE_OF_ONE: Final = 4
"""The part of a budget that one organisation (or address) may use: a quarter."""
UNKNOWN_CALLERS: Final = 16
"""The budget of callers without a credential, as a part of the budget for bodies: a sixteenth."""
BODY_WAIT_SECONDS_MAX: Final = 5.0
ANSWER_WAIT_SECONDS_MAX: Final = 5.0
WAITING_OF_ONE_MAX: Final = 100
"""Requests of one organisation that wait for room; more are refused at once."""
RETRY_AFTER_SECONDS: Final = 5
_REFUSED: Final = (
    f"429 `too_many_bytes_in_flight` or 503 `server_busy`, `Retry-After: {RETRY_AFTER_SECONDS}`"
)
BODIES: Final = CountedBound(
    "bodies",
    of="memory for request bodies, in MiB; of those that no handler has asked for yet, 32 MiB",
    over="server",
    value="one organisation: a quarter",
    response=f"after {BODY_WAIT_SECONDS_MAX:g} s {_REFUSED}; of those that no handler has asked "
    "for, the oldest is cut off",
    settings=["body_memory_mb"],
)
_BODIES_WITHOUT_CREDENTIAL: Final = CountedBound(
    "bodies_without_credential",
    of="the same for callers without a credential. The sign-in form has at most 8 KiB",
    over="server",
    value="a sixteenth; one address: a quarter of that",
    response="as `bodies`",
    settings=["body_memory_mb"],
)
ANSWERS: Final = CountedBound(
    "answers",
    of="memory for responses larger than 64 KiB while they are read, in MiB. A result is in memory "
    "once for all its readers",
    over="server",
    value="one organisation: a quarter",
    response=f"after {ANSWER_WAIT_SECONDS_MAX:g} s {_REFUSED}",
    settings=["answer_memory_mb"],
)


class _Waiting(NamedTuple):
    size: int
    granted: asyncio.Future[None]


class Reservation:
    """Reserved bytes of a budget. ``end`` returns them; calling it again does nothing."""

    __slots__ = ("_budget", "_owner", "size")

    def __init__(self, budget: ByteBudget, owner: str, size: int) -> None:
        self._budget = budget
        self._owner = owner
        self.size = size

    def resize(self, size: int) -> None:
        """Change the size. It may grow beyond the budget: the bytes are in memory already."""
        size = self._budget.at_most_a_share(size)
        self._budget.give_back(self._owner, self.size - size)
        self.size = size

    def end(self) -> None:
        self.resize(0)


class ByteBudget:
    """A number of bytes that callers share, with a maximum for each."""

    def __init__(self, bound: CountedBound, bytes_max: int, *, is_of_bodies: bool) -> None:
        self._bound = bound
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
        """``size`` as it is counted: a size above a share counts as a whole share."""
        return min(size, self._share_max)

    def reserve_now(self, owner: str, size: int) -> Reservation:
        """Reserve bytes. Raises TooManyBytesInFlight or ServerBusy if there is no room now."""
        size = self.at_most_a_share(size)
        if not self._fits(owner, size):
            raise self._refusal(owner, size)
        self._take(owner, size)
        return Reservation(self, owner, size)

    async def reserve(self, owner: str, size: int, wait_seconds: float) -> Reservation:
        """Reserve bytes, waiting for room. Raises the same if there is none in time."""
        size = self.at_most_a_share(size)
        if owner not in self._waiting and self._fits(owner, size):
            self._take(owner, size)
        else:
            await self._granted(owner, size, wait_seconds)
        return Reservation(self, owner, size)

    async def _granted(self, owner: str, size: int, wait_seconds: float) -> None:
        queue = self._waiting.setdefault(owner, deque())
        if len(queue) >= WAITING_OF_ONE_MAX:
            raise self._refusal(owner, size)
        waiting = _Waiting(size, asyncio.get_running_loop().create_future())
        queue.append(waiting)
        try:
            async with asyncio.timeout(wait_seconds):
                await waiting.granted
        except BaseException as error:
            if waiting.granted.done() and not waiting.granted.cancelled():
                self.give_back(owner, size)  # granted in the same iteration as the timeout
            else:
                self._leave(owner, waiting)
            if isinstance(error, TimeoutError):
                raise self._refusal(owner, size) from None
            raise

    def _leave(self, owner: str, waiting: _Waiting) -> None:
        queue = self._waiting.get(owner, deque())
        if waiting in queue:
            queue.remove(waiting)
        if not queue:
            self._waiting.pop(owner, None)

    def give_back(self, owner: str, size: int) -> None:
        """Return bytes to the budget, and grant waiting requests that fit now."""
        if size == 0:
            return
        self._take(owner, -size)
        if size > 0 and self._waiting:
            self._grant_waiting()

    def _grant_waiting(self) -> None:
        """Each organisation's requests in their order; the organisations in turn."""
        for owner in [*self._waiting]:
            queue = self._waiting.pop(owner)
            while queue and (queue[0].granted.done() or self._fits(owner, queue[0].size)):
                waiting = queue.popleft()
                if waiting.granted.done():
                    continue  # it timed out in this iteration of the loop
                self._take(owner, waiting.size)
                waiting.granted.set_result(None)
            if queue:
                self._waiting[owner] = queue

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
        metrics.record_bound_met(self._bound)
        what = "request bodies" if self._is_of_bodies else "large responses"
        if self._held.get(owner, 0) + size > self._share_max:
            return TooManyBytesInFlight(
                RETRY_AFTER_SECONDS,
                f"This caller's {what} in progress use all the memory that one caller may have; "
                "see Retry-After.",
                body_is_unread=self._is_of_bodies,
            )
        return ServerBusy(
            RETRY_AFTER_SECONDS,
            f"The server has no memory left for {what}; see Retry-After.",
            body_is_unread=self._is_of_bodies,
        )


class BodyBudget:
    """The budgets for bodies: one for callers with a credential, one for callers without."""

    def __init__(self, bytes_max: int) -> None:
        self._known = ByteBudget(BODIES, bytes_max, is_of_bodies=True)
        self._unknown = ByteBudget(
            _BODIES_WITHOUT_CREDENTIAL, bytes_max // UNKNOWN_CALLERS, is_of_bodies=True
        )

    @property
    def held_bytes(self) -> int:
        return self._known.held_bytes + self._unknown.held_bytes

    async def reserve(self, org: str | None, address: str, size: int) -> Reservation:
        """Reserve memory for a body of an organisation, or of an address if ``org`` is None.

        Raises TooManyBytesInFlight or ServerBusy.
        """
        if org is None:
            return await self._unknown.reserve(address, size, BODY_WAIT_SECONDS_MAX)
        return await self._known.reserve(org, size, BODY_WAIT_SECONDS_MAX)
