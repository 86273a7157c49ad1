"""Moves jobs on that no worker moves: rescues those of workers that are dead or silent, queues
those whose start time has come, and fails those whose deadline has passed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from coatcheck.core.queries import leases, maintenance
from coatcheck.core.queries.leases import RegisteredWorker
from coatcheck.db.connection import Connection
from coatcheck.db.notifications import CHANGED, READY, Notifier
from coatcheck.domain.limits import CRASHES_MAX
from coatcheck.domain.retry import CRASH_BACKOFF, Backoff
from coatcheck.domain.states import State
from coatcheck.maintenance.loop import Loop
from coatcheck.processes import is_gone, kill_strays, this_host
from coatcheck.telemetry import alerts, context
from coatcheck.telemetry.event_log import EVENTS
from coatcheck.telemetry.job_stats import job_stats_of

_log = logging.getLogger(__name__)
_ROWS_MAX = 200
_CLAIMS_MAX: Final = 100
_FIRST_CLAIM: Final = ("", -1)
_RESCUE_TICK_SECONDS = 1.0


class Rescuer(Loop):
    """Queues the jobs of lost workers again, or fails them if they were lost too often. Also cleans
    up the claims that workers left behind."""

    name: ClassVar[str] = "rescuer"

    def __init__(self, db: Connection, notifier: Notifier, *, keep_failed_seconds: int) -> None:
        super().__init__(db)
        self.backoff: Backoff = CRASH_BACKOFF
        """The delay of a job that has lost its worker more than once."""
        self._notifier = notifier
        self._keep_failed_seconds = keep_failed_seconds
        self._job_stats = job_stats_of(db.database_url)
        self._swept_to = _FIRST_CLAIM

    async def tick(self) -> float:
        if await self.rescue() == _ROWS_MAX:
            return 0.0
        await maintenance.prune_workers(self._db)
        swept_to = await maintenance.sweep_claims(self._db, self._swept_to, _CLAIMS_MAX)
        self._swept_to = swept_to or _FIRST_CLAIM
        return _RESCUE_TICK_SECONDS

    async def rescue(self) -> int:
        """Rescue lost jobs now; returns how many. Several processes may call this at once."""
        rescued = await maintenance.rescue(
            self._db,
            crashes_max=CRASHES_MAX,
            keep_failed_seconds=self._keep_failed_seconds,
            rows_max=_ROWS_MAX,
            backoff=self.backoff,
        )
        for job in rescued:
            self._job_stats.rescued(job.org, job.lane, job.state, job.error_code)
            with context.about_job(job.uuid, job.request_id):
                _log.warning(
                    "rescued a job from a lost worker",
                    extra={"endpoint": job.endpoint, "state": job.state},
                )
            if job.state is State.FAILED:
                alerts.sound(job.uuid, job.endpoint, job.request_id)
            log_end(job)
        if rescued:
            self._notifier.notify(READY, {job.endpoint for job in rescued})
            self._notifier.notify(CHANGED, {job.uuid.hex for job in rescued})
        return len(rescued)


def log_end(job: maintenance.Rescued) -> None:
    """Log a job's end, if it has ended."""
    if job.state.terminal:
        EVENTS.job_ended(
            job.uuid,
            job.org,
            job.endpoint,
            job.state,
            request_id=job.request_id,
            attempt=job.attempts,
            error_code=job.error_code,
        )


_DEAD_WORKER_TICK_SECONDS: Final = 1.0
_HOSTLESS_SECONDS: Final = 60.0
_SEARCHES_MAX: Final = 3


class DeadWorkerDetector(Loop):
    """Finds workers on this host whose process has ended, and rescues their jobs at once."""

    name: ClassVar[str] = "dead worker detector"
    elected: ClassVar[bool] = False

    def __init__(self, db: Connection, rescuer: Rescuer) -> None:
        super().__init__(db)
        self._rescuer = rescuer

    async def tick(self) -> float:
        host = this_host()
        if host is None:
            return _HOSTLESS_SECONDS
        gone = [
            worker
            for worker, pid, ticks in await leases.workers_of_host(self._db, host)
            if is_gone(pid, ticks)
        ]
        if gone and await declare_dead(self._db, gone):
            await self._rescuer.rescue()
        return _DEAD_WORKER_TICK_SECONDS


async def declare_dead(db: Connection, workers: Sequence[RegisteredWorker]) -> list[int]:
    """End the leases of workers; the caller has seen that their processes have ended.

    It first kills the processes that their isolated jobs left behind: a job must not begin again
    while an earlier attempt of it still runs. If a process cannot be killed, its worker's leases
    stay until they expire. Returns the boots whose leases were ended.
    """
    clean = [worker for worker in workers if await _has_no_processes(worker)]
    declared = await leases.declare_dead(db, [worker.boot for worker in clean])
    for boot in declared:
        _log.warning("a worker died: its jobs are queued again", extra={"boot": boot})
    return declared


async def _has_no_processes(worker: RegisteredWorker) -> bool:
    if worker.temp_dir is None:
        return True
    if await asyncio.to_thread(_killed_all_in, worker.temp_dir):
        return True
    _log.error(
        "processes of a dead worker's jobs cannot be killed: its leases stay until they expire",
        extra={"boot": worker.boot},
    )
    return False


def _killed_all_in(directory: Path) -> bool:
    """Kill the processes in a folder; returns whether none is left."""
    return any(kill_strays(directory) == 0 for _ in range(_SEARCHES_MAX))


_STAGE_ROWS_MAX = 500
_TICK_SECONDS_MAX = 1.0
_TICK_SECONDS_MIN = 0.01


class Stager(Loop):
    """Queues staged and retrying jobs that have become due."""

    name: ClassVar[str] = "stager"

    def __init__(self, db: Connection, notifier: Notifier) -> None:
        super().__init__(db)
        self._notifier = notifier

    async def tick(self) -> float:
        staged = await maintenance.queue_due(self._db, _STAGE_ROWS_MAX)
        if staged:
            self._notifier.notify(READY, {job.endpoint for job in staged})
            self._notifier.notify(CHANGED, {job.uuid.hex for job in staged})
        if len(staged) == _STAGE_ROWS_MAX:
            return 0.0
        due = await maintenance.next_due_seconds(self._db)
        if due is None:
            return _TICK_SECONDS_MAX
        return min(_TICK_SECONDS_MAX, max(_TICK_SECONDS_MIN, due))


_EXPIRE_ROWS_MAX = 200
_TICK_SECONDS = 1.0
OVERRUN_SLACK_SECONDS = 30.0
"""A worker enforces run deadlines itself. A live worker that still holds a job this long after the
deadline has lost track of it. The rescuer judges silent workers."""


class Expirer(Loop):
    """Fails jobs that did not start before their deadline, and attempts that overran theirs."""

    name: ClassVar[str] = "expirer"

    def __init__(self, db: Connection, notifier: Notifier, *, keep_failed_seconds: int) -> None:
        super().__init__(db)
        self._notifier = notifier
        self._keep_failed_seconds = keep_failed_seconds
        self._job_stats = job_stats_of(db.database_url)

    async def tick(self) -> float:
        late = await maintenance.expire_waiting(
            self._db, keep_failed_seconds=self._keep_failed_seconds, rows_max=_EXPIRE_ROWS_MAX
        )
        overrun = await maintenance.fail_overrun(
            self._db,
            slack_seconds=OVERRUN_SLACK_SECONDS,
            keep_failed_seconds=self._keep_failed_seconds,
            rows_max=_EXPIRE_ROWS_MAX,
        )
        for job in (*late.jobs, *overrun):
            self._job_stats.moved(job.org, job.lane, job.state, code=job.error_code)
            log_end(job)
        for job in overrun:
            with context.about_job(job.uuid, job.request_id):
                _log.warning(
                    "a worker held a job long past its run deadline",
                    extra={"endpoint": job.endpoint},
                )
            if job.state is State.FAILED:
                alerts.sound(job.uuid, job.endpoint, job.request_id)
        if ended := {job.uuid.hex for job in (*late.jobs, *overrun)}:
            self._notifier.notify(CHANGED, ended)
        return 0.0 if _EXPIRE_ROWS_MAX in (late.rows, len(overrun)) else _TICK_SECONDS
