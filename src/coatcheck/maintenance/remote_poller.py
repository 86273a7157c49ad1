"""Looks after work that is done elsewhere: asks how it stands, when it is time to.

It runs in every worker at once. What is due is shared out by the claim, each place is asked on its
own, and one that is slow to answer, or silent, holds up nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, Final

from coatcheck.core.queries.remote_calls import FIRST, TakenCall
from coatcheck.core.remote.calls import Action, RemoteCalls
from coatcheck.db.connection import Connection
from coatcheck.domain.errors import BlobStoreUnavailable, DatabaseUnavailable, OutcomeUnknown
from coatcheck.maintenance.loop import Loop

_log = logging.getLogger(__name__)

PLACES: Final = 512
"""Calls that are looked at by one process at a time."""
_PER_ORG: Final = 64
_ORGS_MAX: Final = 1_000
_LOOK_SECONDS: Final = 1.0
_LOOK_SECONDS_MIN: Final = 0.02
_NO_ROOM_SECONDS: Final = 0.2
_CLEAR_SECONDS: Final = 10.0
_CLEARED_ROWS_MAX: Final = 200
_TICKS_PER_STRAYS: Final = 30
_NOT_NOW: Final = (BlobStoreUnavailable, DatabaseUnavailable, OutcomeUnknown)


class Poller(Loop):
    """Looks until stopped."""

    name: ClassVar[str] = "poller"
    elected: ClassVar[bool] = False

    def __init__(self, db: Connection, calls: RemoteCalls) -> None:
        super().__init__(db)
        self._calls = calls
        self._after = FIRST
        self._under_way: set[asyncio.Task[None]] = set()
        self._looked_at: Counter[str] = Counter()

    async def tick(self) -> float:
        self._calls.parked.clear()
        room = PLACES - self._looked_at.total()
        if room <= 0:
            return _LOOK_SECONDS_MIN
        taken, self._after = await self._calls.take(
            room, _PER_ORG, _ORGS_MAX, self._after, self._looked_at
        )
        for calls in self._calls.by_place(taken):
            self._looked_at.update(call.org for call in calls)
            self._start(self._ask(calls))
        if taken or self._after != FIRST:
            return _LOOK_SECONDS_MIN
        due = await self._calls.next_due_seconds()
        if due is None:
            return _LOOK_SECONDS
        # What is due and was not taken is of organisations that have no room.
        return min(due, _LOOK_SECONDS) if due > _LOOK_SECONDS_MIN else _NO_ROOM_SECONDS

    async def rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._calls.parked.wait()

    async def stop(self) -> None:
        """Take no more, and let go of what is being looked at."""
        await super().stop()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="upkeep poller look")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _ask(self, calls: Sequence[TakenCall]) -> None:
        """What is to be done about a call is done by a task of its own: a long result takes one
        place, and not those of all that were asked about together."""
        actions: list[Action] = []
        async with self._attending(calls):
            actions = await self._calls.ask(calls)
        for action in actions:
            self._looked_at[action.call.org] += 1
            self._start(self._act(action))

    async def _act(self, action: Action) -> None:
        async with self._attending([action.call]):
            await action.do()

    @asynccontextmanager
    async def _attending(self, calls: Sequence[TakenCall]) -> AsyncIterator[None]:
        try:
            yield
        except _NOT_NOW as error:
            _log.info("remote calls are looked at later: %s", error)
        except Exception:  # noqa: BLE001 - a defect must not end the loop: jobs would wait for ever
            _log.exception("remote calls could not be attended to")
        except asyncio.CancelledError:
            await self._calls.let_go(calls)
            raise
        finally:
            self._looked_at -= Counter(call.org for call in calls)


class RemoteCleanup(Loop):
    """Clears away what is left of jobs that ended while nobody looked at their work: cancelled
    while they waited to be tried again, say."""

    name: ClassVar[str] = "remote keeper"

    def __init__(self, db: Connection, calls: RemoteCalls) -> None:
        super().__init__(db)
        self._calls = calls
        self._ticks = 0

    async def tick(self) -> float:
        cleared = await self._calls.clear_away(_CLEARED_ROWS_MAX)
        if self._ticks % _TICKS_PER_STRAYS == 0:
            # It asks about every parked job, and is there for what should never be.
            await self._calls.fail_strays(_CLEARED_ROWS_MAX)
        self._ticks += 1
        return 0.0 if cleared == _CLEARED_ROWS_MAX else _CLEAR_SECONDS
