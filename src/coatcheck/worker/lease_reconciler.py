"""Compares the leases a worker believes it holds with those in the database.

The two can diverge. A claim commits without waiting for the disk: a crash of PostgreSQL can undo it
while its handler keeps running, and the same worker may claim the job again beside it. And a claim
whose connection broke may be committed only after the worker released it as lost: then the worker
holds jobs that it does not know of, and its heartbeats keep them.

Neither endangers a result, which fencing protects. But a handler whose result cannot count should
stop, and a job that nobody runs should not wait for its run deadline. A single check may be wrong
about work in flight, so only what two checks in a row find is acted on: a lease that the worker
does not know is never one that it learns of later, and a lease that has left the database does not
return.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from uuid import UUID

from coatcheck.core.queries import leases
from coatcheck.db.connection import Connection
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.worker.slots import RunningJob

_log = logging.getLogger(__name__)


class LeaseReconciler:
    """Checks periodically; stops lost attempts, and releases unknown leases.

    ``running`` are the running attempts. ``known`` are all leases that the worker knows: claims in
    flight, jobs that wait or run, outcomes not yet recorded.
    """

    def __init__(
        self,
        db: Connection,
        *,
        boot: Callable[[], int],
        running: Callable[[], Collection[RunningJob]],
        known: Callable[[], set[int]],
        lose: Callable[[RunningJob], None],
        release: Callable[[int], None],
    ) -> None:
        self._db = db
        self._boot = boot
        self._running = running
        self._known = known
        self._lose = lose
        self._release = release
        self._lost: set[RunningJob] = set()
        self._unknown: set[int] = set()

    async def run(self, seconds: float) -> None:
        """Check every ``seconds`` until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.check()
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                _log.info("checking this worker's leases later: %s", error)
            except Exception:  # noqa: BLE001 - the next check follows; jobs go on meanwhile
                _log.exception("checking this worker's leases failed")

    async def check(self) -> None:
        """Check once. Acts on what was already found the time before."""
        began = set(self._running())
        held = await leases.held_jobs(self._db, self._boot())
        still = {(each.job_id, each.lease) for each in held}
        lost = {each for each in began & set(self._running()) if not _is_one_of(still, each)}
        for running in lost & self._lost:
            if running.stop_reason is not None:
                continue  # it is being stopped, and has its grace period
            _log.warning("stopped an attempt that is no longer held")
            self._lose(running)
        self._lost = lost
        # A job that has begun was known to this worker. Whatever made it forget the job, the run
        # deadline ends the attempt and counts it; released, it could repeat this forever.
        unknown = {each.lease for each in held if not each.begun} - self._known()
        for lease in unknown & self._unknown:
            _log.warning("found leases in the database that this worker does not know")
            self._release(lease)
        self._unknown = unknown


def _is_one_of(held: set[tuple[UUID, int]], running: RunningJob) -> bool:
    return (running.claimed.uuid, running.claimed.lease) in held
