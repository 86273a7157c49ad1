"""Queues jobs whose start time has come, and fails jobs whose deadline has passed."""

from __future__ import annotations

import logging
from typing import ClassVar

from coatcheck.core.queries import maintenance
from coatcheck.db.connection import Connection
from coatcheck.db.notifications import CHANGED, READY, Notifier
from coatcheck.domain.states import State
from coatcheck.maintenance.loop import Loop
from coatcheck.maintenance.rescuer import log_end
from coatcheck.telemetry import alerts, context
from coatcheck.telemetry.job_stats import job_stats_of

_log = logging.getLogger(__name__)

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
        for job in (*late, *overrun):
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
        if late or overrun:
            self._notifier.notify(CHANGED, {job.uuid.hex for job in (*late, *overrun)})
        return 0.0 if _EXPIRE_ROWS_MAX in (len(late), len(overrun)) else _TICK_SECONDS
