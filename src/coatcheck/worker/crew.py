"""The slots of one lane: as many jobs at a time as the lane's concurrency, whatever other lanes do.

A slot is one task that runs job after job. Short handlers thereby cost no task each, and a job
that never waits is a plain call. Jobs are claimed a little ahead of free slots when they are so
short that the next round trip would leave the slots idle; long jobs are never claimed ahead.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from uuid import UUID

from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.limits import CLAIM_ROWS_MAX

_log = logging.getLogger(__name__)
_AHEAD_SECONDS = 0.05
_AHEAD_JOBS_MAX = 2 * CLAIM_ROWS_MAX
_BURST_SECONDS = 0.002
"""How long one slot may run jobs that never wait before the event loop has its turn."""
_SMOOTHING = 0.1
_STUCK_SECONDS = 1.0
"""Claimed jobs that no slot has begun for this long are better off elsewhere."""
_CLOSE_SECONDS_MAX = 1.0
"""A handler that will not be interrupted does not keep its worker from ending."""


class Crew:
    """Runs the claimed jobs of one lane."""

    def __init__(self, concurrency: int, run: Callable[[ClaimedJob], Awaitable[None]]) -> None:
        self._concurrency = concurrency
        self._run = run
        self._waiting: deque[ClaimedJob] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._busy = 0
        self._begun = 0
        self._slots: list[asyncio.Task[None]] = []
        self._mean_seconds: float | None = None
        self._begun_at = 0.0
        self._yielding = 0
        self._wake_planned = False

    @property
    def busy(self) -> int:
        return self._busy

    def begun(self) -> int:
        """How many jobs were begun since the last time this was asked."""
        begun, self._begun = self._begun, 0
        return begun

    def room(self) -> int:
        """How many jobs to ask for now."""
        return min(
            CLAIM_ROWS_MAX,
            self._concurrency + self._ahead() - self._busy - len(self._waiting),
        )

    def give(self, jobs: list[ClaimedJob]) -> None:
        """Hand jobs to the slots."""
        if not self._waiting:
            self._begun_at = time.monotonic()
        self._waiting.extend(jobs)
        if not self._wake_planned:
            self._wake_next()

    def take_back(self) -> list[ClaimedJob]:
        """The jobs not begun, which no slot will begin now."""
        jobs = list(self._waiting)
        self._waiting.clear()
        return jobs

    def take_out(self, job_id: UUID) -> ClaimedJob | None:
        """One job, if it has not begun."""
        for job in self._waiting:
            if job.uuid == job_id:
                self._waiting.remove(job)
                return job
        return None

    def take_back_stuck(self, now: float) -> list[ClaimedJob]:
        """The jobs not begun, if none was begun for a while: the running ones are long."""
        if not self._waiting or now - self._begun_at < _STUCK_SECONDS:
            return []
        self._mean_seconds = now - self._begun_at  # so that they are not claimed again at once
        return self.take_back()

    def leases(self) -> set[int]:
        """Of the jobs not begun."""
        return {job.lease for job in self._waiting}

    async def close(self) -> None:
        slots, self._slots = self._slots, []
        for slot in slots:
            slot.cancel()
        if slots:
            await asyncio.wait(slots, timeout=_CLOSE_SECONDS_MAX)

    def _ahead(self) -> int:
        if self._mean_seconds is None:
            return 0
        jobs = _AHEAD_SECONDS * self._concurrency / max(self._mean_seconds, 1e-6)
        return min(_AHEAD_JOBS_MAX, int(jobs) if jobs >= self._concurrency else 0)

    def _wake_next(self) -> None:
        """Set one more slot to work, and look again at the loop's next turn.

        A slot whose handlers never wait works through all there is, pausing now and then; a second
        one would only keep the loop from its turn. One whose handler waits leaves the rest to the
        next slot, a turn later.
        """
        self._wake_planned = False
        if not self._waiting:
            return
        if not self._yielding and not self._wake_one():
            return  # all are at work, and go on by themselves
        self._wake_planned = True
        asyncio.get_running_loop().call_soon(self._wake_next)

    def _wake_one(self) -> bool:
        while self._idle:
            waker = self._idle.pop()
            if not waker.done():
                waker.set_result(None)
                return True
        if len(self._slots) < self._concurrency:
            # In a context of its own: a slot serves many jobs, of none in particular.
            slot = asyncio.create_task(self._slot(), context=contextvars.Context())
            slot.add_done_callback(self._make_up_for)
            self._slots.append(slot)
            return True
        return False

    def _make_up_for(self, slot: asyncio.Task[None]) -> None:
        """A slot never ends by itself. Should a defect end one, its place must not be lost."""
        if slot not in self._slots:
            return  # closed
        self._slots.remove(slot)
        if not slot.cancelled():
            _log.error("a slot broke and is replaced", exc_info=slot.exception())
        if self._waiting and not self._wake_planned:
            self._wake_next()

    async def _slot(self) -> None:
        loop = asyncio.get_running_loop()
        waiting = self._waiting
        while True:
            burst_began = began = time.monotonic()
            while waiting:
                job = waiting.popleft()
                self._begun_at = began
                self._busy += 1
                self._begun += 1
                try:
                    await self._run(job)
                finally:
                    self._busy -= 1
                ended = time.monotonic()
                mean = self._mean_seconds
                self._mean_seconds = (
                    ended - began if mean is None else mean + _SMOOTHING * (ended - began - mean)
                )
                began = ended
                if ended - burst_began > _BURST_SECONDS:
                    await self._pause()
                    burst_began = began = time.monotonic()
            waker: asyncio.Future[None] = loop.create_future()
            self._idle.append(waker)
            await waker

    async def _pause(self) -> None:
        """Let the loop have its turn."""
        self._yielding += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._yielding -= 1
