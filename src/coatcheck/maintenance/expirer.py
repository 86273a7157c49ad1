"""Ends jobs whose time is up: not started by their deadline, or held long past another."""

from __future__ import annotations

import logging
from typing import ClassVar

from coatcheck.core.queries import maintenance as upkeep
from coatcheck.db.channels import CHANGED
from coatcheck.db.connection import Line
from coatcheck.db.notify import Notifier
from coatcheck.domain.states import State
from coatcheck.maintenance.loop import Loop
from coatcheck.maintenance.rescuer import log_end
from coatcheck.telemetry import alerts, context
from coatcheck.telemetry.job_stats import tally_of

_log = logging.getLogger(__name__)
_ROWS_MAX = 200
_LOOK_SECONDS = 1.0
OVERRUN_SLACK_SECONDS = 30.0
"""A worker enforces run deadlines itself. One that is heard of this long after a deadline and still
holds the job has evidently lost track of it. One that is not is the rescuer's to judge."""


class Expirer(Loop):
    name: ClassVar[str] = "expirer"

    def __init__(self, line: Line, notifier: Notifier, *, keep_failed_seconds: int) -> None:
        super().__init__(line)
        self._notifier = notifier
        self._keep_failed_seconds = keep_failed_seconds
        self._tally = tally_of(line.database_url)

    async def tick(self) -> float:
        late = await upkeep.expire_waiting(
            self._line, keep_failed_seconds=self._keep_failed_seconds, rows_max=_ROWS_MAX
        )
        overrun = await upkeep.fail_overrun(
            self._line,
            slack_seconds=OVERRUN_SLACK_SECONDS,
            keep_failed_seconds=self._keep_failed_seconds,
            rows_max=_ROWS_MAX,
        )
        for job in (*late, *overrun):
            self._tally.moved(job.org, job.lane, job.state, code=job.error_code)
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
            self._notifier.say(CHANGED, {job.uuid.hex for job in (*late, *overrun)})
        return 0.0 if _ROWS_MAX in (len(late), len(overrun)) else _LOOK_SECONDS
