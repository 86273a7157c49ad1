"""Limits the number of concurrent uploads, in total and by organisation.

An upload needs memory for as long as it lasts, and its caller decides how long that is. So the
number of uploads is bounded, and lower for one organisation: an organisation with slow uploads
leaves room for the others. An upload that finds no room waits for a while, and is then refused with
a Retry-After.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from coatcheck.domain.bounds import CountedBound, share
from coatcheck.domain.errors import RateLimited
from coatcheck.telemetry import metrics

UPLOADS_MAX: Final = 16
"""Each upload needs some 25 MiB of memory."""
UPLOADS_OF_ONE_ORG_MAX: Final = 6
WAIT_SECONDS_MAX: Final = 20.0
_RETRY_AFTER_SECONDS: Final = 10
_NO_ROOM: Final = "Too many uploads are in progress; see Retry-After."
_UPLOADS: Final = CountedBound(
    "uploads",
    of="uploads of archives, lists and recordings at a time: in total, and of one organisation",
    over="server",
    value=f"{UPLOADS_MAX}, {UPLOADS_OF_ONE_ORG_MAX}",
    response=f"after {WAIT_SECONDS_MAX:g} s 429 `rate_limited`, "
    f"`Retry-After: {_RETRY_AFTER_SECONDS}`",
)


class UploadSlots:
    """Slots for uploads, bounded in total and by organisation.

    The bounds are those of a server with this number of processes, and this is one of them.
    """

    def __init__(
        self,
        processes: int = 1,
        uploads_max: int | None = None,
        of_one_org_max: int | None = None,
    ) -> None:
        self._processes = processes
        self._all = asyncio.Semaphore(share(uploads_max or UPLOADS_MAX, processes))
        self._of_one_org_max = of_one_org_max
        self._orgs: dict[str, OrgRoom] = {}

    @property
    def in_use(self) -> int:
        """How many organisations have an upload, or wait to begin one."""
        return len(self._orgs)

    @asynccontextmanager
    async def slot(self, org: str) -> AsyncIterator[bool]:
        """Take a slot for one upload. Gives whether it had to wait.

        Raises RateLimited if no slot becomes free in time.
        """
        has_to_wait = self._is_full(org)
        async with AsyncExitStack() as leaving:
            try:
                async with asyncio.timeout(WAIT_SECONDS_MAX):
                    # The organisation's slot first: an upload that waits for it must not take a
                    # slot that all organisations share.
                    await leaving.enter_async_context(self._entered_of_org(org))
                    await leaving.enter_async_context(self._all)
            except TimeoutError:
                metrics.record_bound_met(_UPLOADS)
                raise RateLimited(_RETRY_AFTER_SECONDS, (), _NO_ROOM) from None
            yield has_to_wait

    def _is_full(self, org: str) -> bool:
        room = self._orgs.get(org)
        return self._all.locked() or (room is not None and room.slots.locked())

    @asynccontextmanager
    async def _entered_of_org(self, org: str) -> AsyncIterator[None]:
        most = share(self._of_one_org_max or UPLOADS_OF_ONE_ORG_MAX, self._processes)
        room = self._orgs.setdefault(org, OrgRoom(most))
        room.users += 1
        try:
            async with room.slots:
                yield
        finally:
            room.users -= 1
            if room.users == 0:
                del self._orgs[org]


class OrgRoom:
    """One organisation's slots, and how many uploads have one or wait for one."""

    def __init__(self, slots: int) -> None:
        self.slots = asyncio.Semaphore(slots)
        self.users = 0
