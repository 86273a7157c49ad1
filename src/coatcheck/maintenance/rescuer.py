"""Takes jobs from workers that are dead or fell silent, and gives them to others."""

from __future__ import annotations

import logging
from typing import ClassVar

from coatcheck.core.queries import maintenance as upkeep
from coatcheck.db.channels import CHANGED, READY
from coatcheck.db.connection import Line
from coatcheck.db.notify import Notifier
from coatcheck.domain.limits import CRASHES_MAX
from coatcheck.domain.retry import CRASH_BACKOFF, Backoff
from coatcheck.domain.states import State
from coatcheck.maintenance.loop import Loop
from coatcheck.telemetry import alerts, context
from coatcheck.telemetry.event_log import EVENTS
from coatcheck.telemetry.job_stats import tally_of

_log = logging.getLogger(__name__)
_ROWS_MAX = 200
_LOOK_SECONDS = 1.0


class Rescuer(Loop):
    name: ClassVar[str] = "rescuer"

    def __init__(self, line: Line, notifier: Notifier, *, keep_failed_seconds: int) -> None:
        super().__init__(line)
        self.backoff: Backoff = CRASH_BACKOFF
        """How long jobs wait that have lost their worker more than once."""
        self._notifier = notifier
        self._keep_failed_seconds = keep_failed_seconds
        self._tally = tally_of(line.database_url)

    async def tick(self) -> float:
        if await self.rescue() == _ROWS_MAX:
            return 0.0
        await upkeep.forget_workers(self._line)
        return _LOOK_SECONDS

    async def rescue(self) -> int:
        """Take back what is lost now, however many do so at a time. How many jobs that were."""
        rescued = await upkeep.rescue(
            self._line,
            crashes_max=CRASHES_MAX,
            keep_failed_seconds=self._keep_failed_seconds,
            rows_max=_ROWS_MAX,
            backoff=self.backoff,
        )
        for job in rescued:
            self._tally.rescued(job.org, job.lane, job.state, job.error_code)
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


def log_end(job: upkeep.Rescued) -> None:
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
