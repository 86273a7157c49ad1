"""Takes jobs back from workers that are dead or silent, so that others can run them."""

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
from coatcheck.processes.identity import is_gone, this_host
from coatcheck.processes.orphans import kill_strays
from coatcheck.telemetry import alerts, context
from coatcheck.telemetry.event_log import EVENTS
from coatcheck.telemetry.job_stats import job_stats_of

_log = logging.getLogger(__name__)
_ROWS_MAX = 200
_RESCUE_LOOK_SECONDS = 1.0


class Rescuer(Loop):
    name: ClassVar[str] = "rescuer"

    def __init__(self, db: Connection, notifier: Notifier, *, keep_failed_seconds: int) -> None:
        super().__init__(db)
        self.backoff: Backoff = CRASH_BACKOFF
        """How long jobs wait that have lost their worker more than once."""
        self._notifier = notifier
        self._keep_failed_seconds = keep_failed_seconds
        self._job_stats = job_stats_of(db.database_url)

    async def tick(self) -> float:
        if await self.rescue() == _ROWS_MAX:
            return 0.0
        await maintenance.forget_workers(self._db)
        return _RESCUE_LOOK_SECONDS

    async def rescue(self) -> int:
        """Take back what is lost now, however many do so at a time. How many jobs that were."""
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
                    "took a job from a lost worker",
                    extra={"endpoint": job.endpoint, "state": job.state},
                )
            if job.state is State.FAILED:
                alerts.sound(job.uuid, job.endpoint, job.request_id)
            log_end(job)
        if rescued:
            self._notifier.say(READY, {job.endpoint for job in rescued})
            self._notifier.say(CHANGED, {job.uuid.hex for job in rescued})
        return len(rescued)


def log_end(job: maintenance.Rescued) -> None:
    """Have a job's end in the log, if this was it."""
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


_DEAD_WORKER_LOOK_SECONDS: Final = 1.0
_HOSTLESS_SECONDS: Final = 60.0
_SEARCHES_MAX: Final = 3


class DeadWorkerDetector(Loop):
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
        return _DEAD_WORKER_LOOK_SECONDS


async def declare_dead(db: Connection, workers: Sequence[RegisteredWorker]) -> list[int]:
    """End the leases of workers whose process has ended, as whoever calls this has seen.

    Before that, end whatever their isolated jobs had started and left behind: a job is not to begin
    again while an attempt of it still runs. A worker of which something cannot be ended keeps its
    leases until their time is up. Returns whose leases were ended.
    """
    alone = [worker for worker in workers if await _left_nothing_running(worker)]
    declared = await leases.declare_dead(db, [worker.boot for worker in alone])
    for boot in declared:
        _log.warning("a worker died: its jobs start again", extra={"boot": boot})
    return declared


async def _left_nothing_running(worker: RegisteredWorker) -> bool:
    if worker.temp_dir is None:
        return True
    if await asyncio.to_thread(_ended_all_in, worker.temp_dir):
        return True
    _log.error(
        "processes of a dead worker's jobs cannot be ended: its leases are left to end",
        extra={"boot": worker.boot},
    )
    return False


def _ended_all_in(directory: Path) -> bool:
    """Whether a search finds nobody left, after those that were found have been killed."""
    return any(kill_strays(directory) == 0 for _ in range(_SEARCHES_MAX))
