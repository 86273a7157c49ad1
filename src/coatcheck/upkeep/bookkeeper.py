"""Sums up what jobs have used, counts the tasks of runs by it, and completes those that are done.

Reading a year of usage is then reading a row a day, and a batch of a million tasks is one row.
"""

from __future__ import annotations

import logging
from typing import ClassVar, Final

from coatcheck.crash import crash_point
from coatcheck.domain.ids import to_text
from coatcheck.store import batches, usage
from coatcheck.store.channels import CHANGED
from coatcheck.store.line import Line
from coatcheck.store.notify import Notifier
from coatcheck.upkeep.loop import Loop

_log = logging.getLogger(__name__)
_ROWS_MAX: Final = 1_000
_RUNS_MAX: Final = 200
_LOOK_SECONDS: Final = 0.2
"""A batch completes this long after its last task, at most: its row is looked at by then."""
_TELL_SECONDS: Final = 10.0
"""Successes are told together, not more often than this for each run."""


class Bookkeeper(Loop):
    name: ClassVar[str] = "usage roll-up"

    def __init__(self, line: Line, notifier: Notifier) -> None:
        super().__init__(line)
        self._notifier = notifier
        self._has_untold = True  # whoever was elected before may have left some

    async def tick(self) -> float:
        rolled_up = await usage.roll_up(self._line, _ROWS_MAX)
        changed = {batch.hex for batch in rolled_up.batches}
        completed = await batches.complete(self._line, _RUNS_MAX)
        if completed:
            crash_point("batch.completed_not_notified")
        for run in completed:
            changed.add(run.batch.hex)
            _log.info(
                "a run has %s",
                run.status,
                extra={"batch_id": to_text(run.batch), "run_id": to_text(run.run)},
            )
        if changed or self._has_untold:
            # Without a change, too: it was too early for some, and nothing more may end for long.
            self._has_untold = await batches.tell_successes(self._line, _TELL_SECONDS)
        if changed:
            self._notifier.say(CHANGED, changed)
        more = rolled_up.deltas == _ROWS_MAX or len(completed) == _RUNS_MAX
        return 0.0 if more else _LOOK_SECONDS
