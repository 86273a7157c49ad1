"""How many uploads are taken in at a time.

Each needs memory for as long as it lasts, and a caller decides how long that is. So there are only
so many at a time, of one organisation fewer still: one whose uploads all trickle leaves room for
the others. Who finds no room waits for a while, and is then told to come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from coatcheck.domain.errors import RateLimited
from coatcheck.telemetry import metrics

UPLOADS_MAX: Final = 16
"""Each needs some 25 MiB."""
UPLOADS_OF_ONE_ORG_MAX: Final = 6
WAIT_SECONDS_MAX: Final = 20.0
_RETRY_AFTER_SECONDS: Final = 10
_NO_ROOM: Final = "Too many uploads are under way; see Retry-After."


class UploadRoom:
    """Room for uploads on one server: so many at a time, and so many of one organisation."""

    def __init__(self, uploads_max: int | None = None, of_one_org_max: int | None = None) -> None:
        self._all = asyncio.Semaphore(uploads_max or UPLOADS_MAX)
        self._of_one_org_max = of_one_org_max
        self._orgs: dict[str, _OrgRoom] = {}

    @asynccontextmanager
    async def entered(self, org: str) -> AsyncIterator[bool]:
        """Hold a place for one upload; whether it had to be waited for.

        Raises RateLimited if none becomes free in time.
        """
        has_to_wait = self._is_full(org)
        async with AsyncExitStack() as leaving:
            try:
                async with asyncio.timeout(WAIT_SECONDS_MAX):
                    # Its own first: who waits for that must not hold a place of everybody's.
                    await leaving.enter_async_context(self._entered_of_org(org))
                    await leaving.enter_async_context(self._all)
            except TimeoutError:
                metrics.record_bound_met("uploads")
                raise RateLimited(_RETRY_AFTER_SECONDS, (), _NO_ROOM) from None
            yield has_to_wait

    def _is_full(self, org: str) -> bool:
        room = self._orgs.get(org)
        return self._all.locked() or (room is not None and room.places.locked())

    @asynccontextmanager
    async def _entered_of_org(self, org: str) -> AsyncIterator[None]:
        room = self._orgs.setdefault(org, _OrgRoom(self._of_one_org_max or UPLOADS_OF_ONE_ORG_MAX))
        room.users += 1
        try:
            async with room.places:
                yield
        finally:
            room.users -= 1
            if room.users == 0:
                del self._orgs[org]


class _OrgRoom:
    """One organisation's places, and how many hold one or wait for one."""

    def __init__(self, places: int) -> None:
        self.places = asyncio.Semaphore(places)
        self.users = 0
