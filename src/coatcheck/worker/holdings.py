"""Holds what a worker believes to hold against what the database says.

The two can part. A claim commits without waiting for the disk: a crash of PostgreSQL takes it back
while its handler runs on, and the same worker may claim the job again beside it. And a claim whose
connection broke may be committed only after it was given back for lost: then the worker holds jobs
that it does not know of, and its heartbeats keep them.

Neither harms a result, which the fence guards. But a handler that counts no more should end, and a
job that nobody runs should not wait for its run deadline. One look may be wrong about what is on
its way, so only what two looks in a row say is acted upon: a lease that the worker does not know
is never one that it comes to know, and what has left the database's hands does not return to them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from uuid import UUID

from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.store import leases
from coatcheck.store.line import Line
from coatcheck.worker.running import RunningJob

_log = logging.getLogger(__name__)


class Holdings:
    """Looks now and then; stops what is lost, and has what is unknown given back.

    ``running`` are the attempts under way. ``known`` are the leases of whatever the worker has to
    do with: claims under way, jobs that wait or run, results that are not handed in yet.
    """

    def __init__(
        self,
        line: Line,
        *,
        boot: Callable[[], int],
        running: Callable[[], Collection[RunningJob]],
        known: Callable[[], set[int]],
        lose: Callable[[RunningJob], None],
        give_back: Callable[[int], None],
    ) -> None:
        self._line = line
        self._boot = boot
        self._running = running
        self._known = known
        self._lose = lose
        self._give_back = give_back
        self._lost: set[RunningJob] = set()
        self._unknown: set[int] = set()

    async def run(self, seconds: float) -> None:
        """Look until cancelled, every ``seconds``."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.look()
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                _log.info("what this worker holds is looked at later: %s", error)
            except Exception:  # noqa: BLE001 - it is looked at again; jobs go on meanwhile
                _log.exception("looking at what this worker holds failed")

    async def look(self) -> None:
        """One look. What it finds for the second time is acted upon."""
        began = set(self._running())
        held = await leases.holdings(self._line, self._boot())
        still = {(each.job_id, each.lease) for each in held}
        lost = {each for each in began & set(self._running()) if not _is_one_of(still, each)}
        for running in lost & self._lost:
            if running.stop_reason is not None:
                continue  # it is being stopped, and has its grace to end in
            _log.warning("stopped an attempt that is no longer held")
            self._lose(running)
        self._lost = lost
        # One that has begun was known to this worker. Whatever made it lose sight of the job, its
        # run deadline ends the attempt, and counts it: given back, it could go on so for ever.
        unknown = {each.lease for each in held if not each.begun} - self._known()
        for lease in unknown & self._unknown:
            _log.warning("found jobs held that this worker does not know of")
            self._give_back(lease)
        self._unknown = unknown


def _is_one_of(held: set[tuple[UUID, int]], running: RunningJob) -> bool:
    return (running.claimed.uuid, running.claimed.lease) in held
