"""Completes runs whose tasks have all ended, and has webhooks sent of tasks that succeeded.

How many tasks of a run have ended is counted with the usage of jobs, by another loop
(``bookkeeper.py``), which may run in another process.
"""

from __future__ import annotations

import logging
from typing import ClassVar, Final

from coatcheck.crash import crash_point
from coatcheck.db.channels import CHANGED
from coatcheck.db.connection import Line
from coatcheck.db.notify import Notifier
from coatcheck.domain.ids import to_text
from coatcheck.maintenance.loop import Loop
from coatcheck.products.batches.queries import batches

_log = logging.getLogger(__name__)
_RUNS_MAX: Final = 200
_LOOK_SECONDS: Final = 0.2
"""A run completes at most this long after its last task was counted."""
_SUCCESSES_SECONDS: Final = 10.0
"""A run's webhook reports successes together, at most once in so many seconds."""


class RunCompleter(Loop):
    name: ClassVar[str] = "run completion"

    def __init__(self, line: Line, notifier: Notifier) -> None:
        super().__init__(line)
        self._notifier = notifier

    async def tick(self) -> float:
        completed = await batches.complete(self._line, _RUNS_MAX)
        if completed:
            crash_point("batch.completed_not_notified")
        for run in completed:
            _log.info(
                "a run has %s",
                run.status,
                extra={"batch_id": to_text(run.batch), "run_id": to_text(run.run)},
            )
        await batches.tell_successes(self._line, _SUCCESSES_SECONDS)
        if completed:
            self._notifier.say(CHANGED, {run.batch.hex for run in completed})
        return 0.0 if len(completed) == _RUNS_MAX else _LOOK_SECONDS
