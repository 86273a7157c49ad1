"""The slots of one lane: they run as many jobs at once as the lane's concurrency allows.

A slot is a task that runs one job after another. So short handlers need no task each, and a job
that never waits is a plain call. Jobs are claimed a little ahead of free slots if they are so short
that the next round trip would leave the slots idle; long jobs are never claimed ahead.

If organisations share the worker, the last slots are reserved for organisations that hold none,
since nobody can take back a slot that is held for a day. An organisation that holds one may begin
another job only while more slots than the reserved ones are free.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from itertools import takewhile
from operator import itemgetter
from uuid import UUID

import msgspec

from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.limits import CLAIM_ROWS_MAX
from coatcheck.job import Job

_log = logging.getLogger(__name__)


class StopReason(Enum):
    """Why a handler is stopped from outside."""

    TIMEOUT = auto()  # it exceeded its timeout
    CANCEL = auto()  # cancellation was requested, and it did not stop by itself
    DRAIN = auto()  # this worker is shutting down
    LOST = auto()  # its lease is lost: whatever it does no longer counts
    GIVEN_BACK = auto()  # it would not stop, and its job was released without it


class RunningJob(msgspec.Struct, eq=False):
    """The state of an attempt while its handler runs. Times are monotonic."""

    claimed: ClaimedJob
    job: Job
    task: asyncio.Task[None]
    started_at: float
    deadline: float
    shown_from: float | None
    """When it began to count as processing; None until its handler reports its start."""
    marked: bool = False
    over: bool = False
    cancel_asked_at: float | None = None
    stop_reason: StopReason | None = None
    stopped_at: float = 0.0

    def ask_to_stop(self, now: float) -> None:
        """Tell the handler that cancellation was requested."""
        if self.cancel_asked_at is None:
            self.cancel_asked_at = now
            self.job.mark_cancel_requested()

    def stop(self, reason: StopReason, now: float) -> None:
        """Interrupt the handler, unless it has ended. The first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
        self.stopped_at = now
        if not self.over:
            self.task.cancel()


_AHEAD_SECONDS = 0.05
_AHEAD_JOBS_MAX = 2 * CLAIM_ROWS_MAX
_BURST_SECONDS = 0.002
"""How long one slot may run jobs that never wait before it yields to the event loop."""
_SMOOTHING = 0.1
_STUCK_SECONDS = 1.0
"""Claimed jobs that no slot has begun for this long are released to other workers."""
_LONG_SECONDS = _AHEAD_SECONDS
"""A job that has run for this long may run forever: if organisations share a worker, nothing is
claimed ahead for its slot."""
_CLOSE_SECONDS_MAX = 1.0
"""A handler that cannot be interrupted must not keep its worker from ending."""


class SlotPool:
    """Runs the claimed jobs of one lane.

    ``reserved`` slots are kept for organisations that hold none, once ``share`` has reported that
    there are several.
    """

    def __init__(
        self,
        concurrency: int,
        run: Callable[[ClaimedJob, asyncio.Task[None]], Awaitable[None]],
        *,
        reserved: int = 0,
    ) -> None:
        """``run`` runs a job in the task that it is given, the slot's."""
        self._concurrency = concurrency
        self._run = run
        self._reserved_if_shared = reserved
        self._reserved = 0
        self._waiting: deque[ClaimedJob] = deque()
        self._held_back: deque[ClaimedJob] = deque()
        self._held_back_at = 0.0
        self._running: dict[int, float] = {}
        self._running_of: dict[str, int] = {}
        self._at_work: list[tuple[ClaimedJob, float] | None] = []
        """By slot: the job it runs, and since when."""
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
        """How many jobs were begun since the last call."""
        begun, self._begun = self._begun, 0
        return begun

    def share(self, shared: bool) -> None:
        """Set whether several organisations use this worker: only then are slots reserved."""
        reserved = self._reserved_if_shared if shared else 0
        if reserved < self._reserved:
            self._waiting.extendleft(reversed(self._held_back))
            self._held_back.clear()
            if not self._wake_planned:
                self._wake_next()
        if reserved and not self._reserved:
            self._count_who_runs()
        self._reserved = reserved

    def room(self) -> int:
        """How many jobs to claim now, of any organisation."""
        ahead, not_begun = self._ahead(), self._not_begun()
        free = self._concurrency - self._reserved - self._busy - not_begun
        if free <= 0 and not_begun > ahead // 2:
            return 0  # enough for a while, and few more would cost a claim as much as many
        room = free + ahead
        return max(0, min(CLAIM_ROWS_MAX, room))

    def room_for_newcomers(self) -> int:
        """How many jobs to claim of organisations that hold none, one each."""
        if not self._reserved:
            return 0
        return max(0, self._concurrency - self._busy - len(self._waiting))

    def holders(self) -> set[str]:
        """The organisations that hold a slot or wait for one here."""
        held = {job.org for job in self._waiting} | {job.org for job in self._held_back}
        return held | self._running_of.keys()

    def give(self, jobs: list[ClaimedJob]) -> None:
        """Give jobs to the slots."""
        if not self._waiting:
            self._begun_at = time.monotonic()
        self._waiting.extend(jobs)
        if not self._wake_planned:
            self._wake_next()

    def take_back(self) -> list[ClaimedJob]:
        """Remove and return the jobs that have not begun."""
        jobs = [*self._held_back, *self._waiting]
        self._held_back.clear()
        self._waiting.clear()
        return jobs

    def take_out(self, job_id: UUID) -> ClaimedJob | None:
        """Remove and return one job, if it has not begun."""
        for queue in (self._waiting, self._held_back):
            for job in queue:
                if job.uuid == job_id:
                    queue.remove(job)
                    return job
        return None

    def take_back_stuck(self, now: float) -> list[ClaimedJob]:
        """The jobs that have not begun, if none began for a while because the running ones are
        long. Also all held-back jobs, if the first of them has waited for a while."""
        if not self._waiting or now - self._begun_at < _STUCK_SECONDS:
            if not self._held_back or now - self._held_back_at < _STUCK_SECONDS:
                return []
            held_back = list(self._held_back)
            self._held_back.clear()
            return held_back
        self._mean_seconds = now - self._begun_at  # so that they are not claimed again at once
        return self.take_back()

    def leases(self) -> set[int]:
        """The leases of the jobs that have not begun."""
        return {job.lease for queue in (self._waiting, self._held_back) for job in queue}

    async def close(self) -> None:
        slots, self._slots = self._slots, []
        for slot in slots:
            slot.cancel()
        if slots:
            await asyncio.wait(slots, timeout=_CLOSE_SECONDS_MAX)

    def _ahead(self) -> int:
        if self._mean_seconds is None:
            return 0
        slots = self._concurrency
        if self._reserved:
            slots -= self._reserved + self._long_running()
            if slots <= 0:
                return 0
        jobs = _AHEAD_SECONDS * slots / max(self._mean_seconds, 1e-6)
        return min(_AHEAD_JOBS_MAX, int(jobs) if jobs >= slots else 0)

    def _long_running(self) -> int:
        since = time.monotonic() - _LONG_SECONDS
        # Ordered by start.
        return sum(1 for _ in takewhile(lambda began: began < since, self._running.values()))

    def _not_begun(self) -> int:
        return len(self._waiting) + len(self._held_back)

    def _next(self) -> ClaimedJob | None:
        """The next job that a slot may begin; others are held back until a job ends."""
        if self._busy < self._concurrency - self._reserved:
            if self._held_back:
                self._held_back_at = time.monotonic()  # they move on
                return self._held_back.popleft()
            return self._waiting.popleft() if self._waiting else None
        while self._waiting:
            job = self._waiting.popleft()
            if job.org not in self._running_of:
                return job
            if not self._held_back:
                self._held_back_at = time.monotonic()
            self._held_back.append(job)
        return None

    def _wake_next(self) -> None:
        """Wake one more slot, and check again in the next iteration of the loop.

        A slot whose handlers never wait works through the whole queue, pausing now and then; a
        second one would only block the loop. A slot whose handler waits leaves the rest to the next
        slot, one iteration later.
        """
        self._wake_planned = False
        if not self._waiting:
            return
        if not self._yielding and not self._wake_one():
            return  # all are busy, and continue by themselves
        self._wake_planned = True
        asyncio.get_running_loop().call_soon(self._wake_next)

    def _wake_one(self) -> bool:
        while self._idle:
            waker = self._idle.pop()
            if not waker.done():
                waker.set_result(None)
                return True
        if len(self._slots) < self._concurrency:
            # In a context of its own: a slot serves many jobs and belongs to none.
            slot = asyncio.create_task(self._slot(), context=contextvars.Context())
            slot.add_done_callback(self._make_up_for)
            self._slots.append(slot)
            return True
        return False

    def _make_up_for(self, slot: asyncio.Task[None]) -> None:
        """Replace a slot that ended. None ends by itself, but a defect must not cost a slot."""
        if slot not in self._slots:
            return  # closed
        self._slots.remove(slot)
        if not slot.cancelled():
            _log.error("a slot failed and is replaced", exc_info=slot.exception())
        if self._waiting and not self._wake_planned:
            self._wake_next()

    async def _slot(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        waiting = self._waiting
        place = len(self._at_work)
        self._at_work.append(None)
        while True:
            burst_began = began = time.monotonic()
            while waiting or self._held_back:
                is_shared = self._reserved > 0
                job = self._next() if is_shared else waiting.popleft()
                if job is None:
                    break
                self._begun_at = began
                self._busy += 1
                self._begun += 1
                if is_shared:  # only then does it matter who holds what, and it costs time per job
                    self._enter(job, began)
                self._at_work[place] = (job, began)
                try:
                    await self._run(job, task)
                finally:
                    self._busy -= 1
                    self._at_work[place] = None
                    if self._running and id(job) in self._running:
                        self._leave(job)
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

    def _count_who_runs(self) -> None:
        """Count the running jobs that began while nobody counted by organisation."""
        begun = [each for each in self._at_work if each and id(each[0]) not in self._running]
        begun.sort(key=itemgetter(1))
        self._running = {id(job): began for job, began in begun} | self._running
        for job, _ in begun:
            self._running_of[job.org] = self._running_of.get(job.org, 0) + 1

    def _enter(self, job: ClaimedJob, began: float) -> None:
        self._running[id(job)] = began
        self._running_of[job.org] = self._running_of.get(job.org, 0) + 1

    def _leave(self, job: ClaimedJob) -> None:
        del self._running[id(job)]
        others = self._running_of[job.org] - 1
        if others:
            self._running_of[job.org] = others
        else:
            del self._running_of[job.org]

    async def _pause(self) -> None:
        """Yield to the event loop."""
        self._yielding += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._yielding -= 1
