"""Finds lists that nobody takes in any more: whose job was lost, or has ended without them."""

from __future__ import annotations

import logging
from typing import ClassVar, Final

from coatcheck.crash import crash_point
from coatcheck.db.channels import CHANGED, READY
from coatcheck.db.connection import Line
from coatcheck.db.notify import Notifier
from coatcheck.domain.ids import to_text
from coatcheck.domain.states import State
from coatcheck.maintenance.loop import Loop
from coatcheck.products.batches.ingest_jobs import ingest_job
from coatcheck.products.batches.model import INGEST_ENDPOINT
from coatcheck.products.batches.queries import ingest as batch_ingest
from coatcheck.products.batches.queries.ingest import LostPart

_log = logging.getLogger(__name__)
_ROWS_MAX: Final = 200
_LOOK_SECONDS: Final = 3.0
RESUBMITS_MAX: Final = 3
"""How often a list that lost its job is given another one before somebody has to look at it."""


class Reconciler(Loop):
    """Gives such a list another job, a few times. One whose job failed for good becomes a dead
    letter, to be redriven. And a run whose latch was lost is latched."""

    name: ClassVar[str] = "reconciler"

    def __init__(self, line: Line, notifier: Notifier) -> None:
        super().__init__(line)
        self._notifier = notifier

    async def tick(self) -> float:
        latched = await batch_ingest.latch_left(self._line, _ROWS_MAX)
        if latched:
            self._notifier.say(CHANGED, {batch.hex for batch in latched})
        lost = await batch_ingest.lost_parts(self._line, _ROWS_MAX)
        for part in lost:
            await self._settle(part)
        return 0.0 if _ROWS_MAX in (len(latched), len(lost)) else _LOOK_SECONDS

    async def _settle(self, lost: LostPart) -> None:
        about = {"batch_id": to_text(lost.batch), "part_id": to_text(lost.part)}
        if lost.job_state is not State.FAILED and lost.redrives < RESUBMITS_MAX:
            crash_point("reconcile.before_resubmit")
            job = ingest_job(lost.org, lost.part, lost.request_id)
            if await batch_ingest.entrust(self._line, lost, job):
                _log.warning("a list had lost its ingest job, and got another", extra=about)
                self._notifier.say(READY, [INGEST_ENDPOINT])
            return
        code, message = _why(lost)
        if await batch_ingest.fail_part(
            self._line, lost.org, lost.part, code, message, lost.ingest_job
        ):
            _log.warning("a list could not be taken in: %s", code, extra=about)
            self._notifier.say(CHANGED, [lost.batch.hex])


def _why(lost: LostPart) -> tuple[str, str]:
    if lost.job_state is State.FAILED and lost.error_code is not None:
        return lost.error_code, lost.error_message or ""
    return "ingest_lost", f"the job that took the list in was lost {lost.redrives + 1} times"
