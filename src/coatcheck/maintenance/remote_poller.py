"""Polls remotes for the status of the work that jobs have started there.

The poller runs in every worker at the same time, and a claim divides the due calls among them. Each
remote is polled separately, so a slow or silent one delays no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, Final

from coatcheck.core.queries.remote_calls import FIRST, ClaimedCall
from coatcheck.core.remote.calls import Action, RemoteCalls
from coatcheck.db.connection import Connection
from coatcheck.domain.errors import BlobStoreUnavailable, DatabaseUnavailable, OutcomeUnknown
from coatcheck.maintenance.loop import Loop

_log = logging.getLogger(__name__)

PLACES: Final = 512
"""How many remote calls one process handles at the same time."""
_PER_ORG: Final = 64
_ORGS_MAX: Final = 1_000
_TICK_SECONDS: Final = 1.0
_TICK_SECONDS_MIN: Final = 0.02
_NO_ROOM_SECONDS: Final = 0.2
_CLEAR_SECONDS: Final = 10.0
_CLEARED_ROWS_MAX: Final = 200
_TICKS_PER_STRAY_CHECK: Final = 30
_NOT_NOW: Final = (BlobStoreUnavailable, DatabaseUnavailable, OutcomeUnknown)


class Poller(Loop):
    """Polls until stopped."""

    name: ClassVar[str] = "poller"
    elected: ClassVar[bool] = False

    def __init__(self, db: Connection, calls: RemoteCalls) -> None:
        super().__init__(db)
        self._calls = calls
        self._after = FIRST
        self._under_way: set[asyncio.Task[None]] = set()
        self._handled: Counter[str] = Counter()

    async def tick(self) -> float:
        self._calls.parked.clear()
        room = PLACES - self._handled.total()
        if room <= 0:
            return _TICK_SECONDS_MIN
        taken, self._after = await self._calls.claim(
            room, _PER_ORG, _ORGS_MAX, self._after, self._handled
        )
        for calls in self._calls.by_place(taken):
            self._handled.update(call.org for call in calls)
            self._start(self._ask(calls))
        if taken or self._after != FIRST:
            return _TICK_SECONDS_MIN
        due = await self._calls.next_due_seconds()
        if due is None:
            return _TICK_SECONDS
        # Calls that are due and were not taken belong to organisations at their limit.
        return min(due, _TICK_SECONDS) if due > _TICK_SECONDS_MIN else _NO_ROOM_SECONDS

    async def rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._calls.parked.wait()

    async def stop(self) -> None:
        """Take no more calls, and release those that are being handled."""
        await super().stop()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="maintenance poll")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _ask(self, calls: Sequence[ClaimedCall]) -> None:
        """Poll a remote for several calls at once, and then act on each in its own task: a long
        result occupies one place, not the places of all that were polled together."""
        actions: list[Action] = []
        async with self._handling(calls):
            actions = await self._calls.ask(calls)
        for action in actions:
            self._handled[action.call.org] += 1
            self._start(self._act(action))

    async def _act(self, action: Action) -> None:
        async with self._handling([action.call]):
            await action.do()

    @asynccontextmanager
    async def _handling(self, calls: Sequence[ClaimedCall]) -> AsyncIterator[None]:
        try:
            yield
        except _NOT_NOW as error:
            _log.info("polling remote calls later: %s", error)
        except Exception:  # noqa: BLE001 - a defect must not end the loop: jobs would wait forever
            _log.exception("polling remote calls failed")
        except asyncio.CancelledError:
            await self._calls.release(calls)
            raise
        finally:
            self._handled -= Counter(call.org for call in calls)


class RemoteCleanup(Loop):
    """Deletes the remote calls of jobs that ended without being polled, such as jobs cancelled
    while they waited for a retry."""

    name: ClassVar[str] = "remote cleanup"

    def __init__(self, db: Connection, calls: RemoteCalls) -> None:
        super().__init__(db)
        self._calls = calls
        self._ticks = 0

    async def tick(self) -> float:
        cleared = await self._calls.endings.delete_leftovers(_CLEARED_ROWS_MAX)
        if self._ticks % _TICKS_PER_STRAY_CHECK == 0:
            # This reads every parked job, to find calls that should never exist.
            await self._calls.endings.fail_orphans(_CLEARED_ROWS_MAX)
        self._ticks += 1
        return 0.0 if cleared == _CLEARED_ROWS_MAX else _CLEAR_SECONDS
