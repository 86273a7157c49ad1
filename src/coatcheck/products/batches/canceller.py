"""Ends the tasks of runs that were cancelled: a chunk of each run at a time, so that a run of a
million holds nobody up."""

from __future__ import annotations

from typing import ClassVar, Final

from coatcheck.db.channels import CANCEL, CHANGED
from coatcheck.db.connection import Line
from coatcheck.db.notify import Notifier
from coatcheck.domain.states import State
from coatcheck.maintenance.loop import Loop
from coatcheck.products.batches.queries import removal as batch_removal
from coatcheck.products.batches.queries.removal import CancellingRun
from coatcheck.telemetry.job_stats import tally_of

_RUNS_MAX: Final = 20
_TASKS_MAX: Final = 1_000
_LOOK_SECONDS: Final = 1.0


class BatchCanceller(Loop):
    """Whoever cancels a run has seen to it that no more of its tasks are claimed. Here, it is made
    to take no more in, its waiting tasks end, and those that run are asked to stop; it completes
    when they have (bookkeeper.py). Until then it is looked at again and again: what a claim held
    at one look is found at the next."""

    name: ClassVar[str] = "batch canceller"

    def __init__(self, line: Line, notifier: Notifier) -> None:
        super().__init__(line)
        self._notifier = notifier
        self._tally = tally_of(line.database_url)
        self._after: CancellingRun | None = None

    async def tick(self) -> float:
        runs = await batch_removal.cancelling(self._line, self._after, _RUNS_MAX)
        self._after = runs[-1] if len(runs) == _RUNS_MAX else None
        cancelled = [await self._end_tasks(run) for run in runs]
        more = self._after is not None or any(count >= _TASKS_MAX for count in cancelled)
        return 0.0 if more else _LOOK_SECONDS

    async def _end_tasks(self, run: CancellingRun) -> int:
        await batch_removal.end_intake(self._line, run)
        cancelled, lane = await batch_removal.cancel_waiting(self._line, run, _TASKS_MAX)
        if lane is not None:
            self._tally.moved(run.org, lane, State.CANCELLED, jobs=cancelled)
        asked = await batch_removal.ask_to_stop(self._line, run, _TASKS_MAX)
        if asked:
            self._notifier.say(CANCEL, [f"{task.boot}:{task.uuid.hex}" for task in asked])
        if asked or cancelled:
            self._notifier.say(CHANGED, [run.batch.hex])
        return max(cancelled, len(asked))
