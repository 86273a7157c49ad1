"""Leases: how a worker keeps its jobs, and how it notices that it has lost them.

Every claim takes a new lease: ``boot << 40 | n``, where the boot is this process's row in
``workers`` and n counts its claims. A worker that holds a job proves it with that number in each
write. The database compares it in the same statement, so a worker whose lease was revoked can
change nothing, however late its write arrives. That is the fence, and correctness rests on it
alone.

Liveness is a separate matter. One heartbeat renews one row for all jobs of the worker. If a rescuer
finds the row older than the lane's ack timeout, by the database's clock, it takes the jobs away.
While the database is unreachable, the worker cannot ask whether that has happened, so it assumes
the worst in time: two thirds of the lane's lease after it sent the last heartbeat that was
answered, by its own monotonic clock, it stops the lane's handlers and kills its children. A
process that was paused (SIGSTOP, a sleeping laptop) and resumes finds its clock advanced and does
the same. No wall clock of a worker decides anything.

Most observers can only see that a worker is silent. Those who know more need not wait: the parent
that has reaped its process, and any process on the same host that finds its PID gone, or reused by
a process that started later, record the death in its row (``processes.py``), and its jobs
are reclaimed at once. A database session that ended proves nothing: all of them end in a failover,
while the workers live.

A job that the worker stopped this way may still be its own in the database, and a later heartbeat
would renew it although nobody runs it. So the worker releases each such job, fenced like every
write: if the job was rescued meanwhile, that changes nothing. In a lane whose lease is not certain
to hold, nothing new is claimed.

A worker that can renew its row but cannot record its results is of no use to its jobs: when
recording has failed for half of the shortest lease, it stops renewing, and the leases expire.

Compares the leases a worker believes it holds with those in the database.

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
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from coatcheck.core.queries import leases
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection
from coatcheck.domain.catalogue import VersionSpec
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.lanes import Lane, LanePolicy
from coatcheck.processes import this_process
from coatcheck.worker.slots import RunningJob

_log = logging.getLogger(__name__)
_UNHURRIED_TIMEOUT_SECONDS = 10.0
_CLAIM_BITS = 40
"""Numbers for 34 years of 1,000 claims a second, and for 8 million boots."""


class LeaseRenewer:
    """Renews this worker's leases and knows how long each lane's lease still holds."""

    def __init__(
        self,
        db: Connection,
        registry_db: Connection,
        lanes: Mapping[Lane, LanePolicy],
        *,
        name: str,
        version: str,
        endpoints: Sequence[str],
        published: Mapping[str, Sequence[VersionSpec]] | None = None,
        on_cancel: Callable[[UUID], None],
        on_lost: Callable[[Lane], None],
        on_held_again: Callable[[], None],
        recording_failed_for: Callable[[], float],
    ) -> None:
        self._db = db
        self._registry_db = registry_db
        self._lanes = dict(lanes)
        self._name = name
        self._version = version
        self._endpoints = list(endpoints)
        self._published = published
        self.temp_dir: Path | None = None
        """For the next registration: where the folders of isolated jobs are."""
        self._on_cancel = on_cancel
        self._on_lost = on_lost
        self._on_held_again = on_held_again
        self._recording_failed_for = recording_failed_for
        self._shortest = min(policy.ack_seconds for policy in lanes.values())
        self.longest_seconds = max(policy.ack_seconds for policy in lanes.values())
        self.interval = min(5.0, self._shortest / 6)
        self._renewed_at = time.monotonic()
        self._claims = 0
        self.boot = 0

    async def register(self) -> None:
        """Start a boot: all leases from now on belong to it, and so do the published services."""
        sent_at = time.monotonic()
        self.boot = await leases.register(
            self._registry_db,
            self._name,
            self._version,
            self._lanes,
            self._endpoints,
            self._published,
            process=this_process(),
            temp_dir=self.temp_dir,
        )
        self._claims = 0
        self._renewed(sent_at)

    async def deregister(self) -> None:
        await leases.deregister(self._registry_db, self.boot)

    def fresh_lease(self) -> int:
        self._claims += 1
        return self.boot << _CLAIM_BITS | self._claims

    def holds(self, lane: Lane, now: float) -> bool:
        """Whether the lane's jobs are certainly still ours."""
        return now - self._renewed_at < self._lanes[lane].ack_seconds * 2 / 3

    def stop_lost_lanes(self, now: float) -> None:
        """Stop the lanes whose lease has expired. Also called before a renewal: after a long pause,
        a renewal would make the lanes look held again although others hold their jobs already."""
        for lane in self._lanes:
            if not self.holds(lane, now):
                self._on_lost(lane)

    async def run(self) -> None:
        """Renew until cancelled."""
        sent_at = time.monotonic()
        while True:
            # Counted from when the last one was sent: otherwise a single hanging heartbeat would
            # delay the next one, and cost a lane with the shortest lease its jobs.
            await asyncio.sleep(max(0.0, sent_at + self.interval - time.monotonic()))
            sent_at = time.monotonic()
            if self._recording_failed_for() > self._shortest / 2:
                _log.warning("results cannot be recorded: letting the leases expire")
                continue
            await self.renew()

    async def renew(self) -> None:
        """Send one heartbeat. A missed one is harmless; the next may be answered."""
        sent_at = time.monotonic()
        self.stop_lost_lanes(sent_at)
        try:
            async with asyncio.timeout(self._heartbeat_timeout(sent_at)):
                to_cancel = await leases.heartbeat(self._db, self.boot)
        except leases.RegistrationGone:
            # Rescued while we were away and pruned, or wrongly declared dead. Our jobs are lost;
            # start over.
            _log.warning("this worker was declared dead; it registers again")
            self._renewed_at = float("-inf")
            self.stop_lost_lanes(sent_at)
            await self._register_again()
            return
        except (DatabaseUnavailable, OutcomeUnknown, TimeoutError) as error:
            _log.info("heartbeat not answered: %s", error)
            return
        crash_point("heartbeat.sent")
        self._renewed(sent_at)
        for job_id in to_cancel:
            self._on_cancel(job_id)

    def _heartbeat_timeout(self, now: float) -> float:
        """The timeout of a heartbeat.

        A heartbeat that times out closes its connection. On a server that is short of time, a new
        connection with a heartbeat can take longer than the interval: if each one were cut off as
        early as the last, none would ever be answered, and the reconnecting would keep the server
        busy. With nothing left to lose there is no hurry.
        """
        if any(self.holds(lane, now) for lane in self._lanes):
            return self.interval * 2
        return max(self.interval * 2, _UNHURRIED_TIMEOUT_SECONDS)

    def _renewed(self, sent_at: float) -> None:
        held = all(self.holds(lane, sent_at) for lane in self._lanes)
        self._renewed_at = sent_at
        if not held:
            self._on_held_again()

    async def _register_again(self) -> None:
        try:
            await self.register()
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info("registration not answered: %s", error)


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
