"""How a worker keeps its jobs, and how it notices that it has lost them.

Every claim takes a fresh lease: ``boot << 40 | n``, where the boot is this process's row in
``workers`` and n counts its claims. Whoever holds a job proves it with that number in each write;
the database compares it in the same statement, so a holder that was given up can change nothing,
however late its write arrives. That is the fence, and correctness rests on it alone.

Liveness is a different thing. One heartbeat renews one row for all jobs of the worker. A rescuer
that finds the row older than the lane's ack timeout, by the database's clock, takes the jobs away.
The worker cannot ask whether that has happened while the database is out of reach, so it assumes
the worst in time: at two thirds of the lane's lease since the last heartbeat that was answered,
measured from when it was sent, by its own monotonic clock, it stops the lane's handlers and kills
its children. A process that was stopped (SIGSTOP, a sleeping laptop) and goes on finds its clock
advanced and does the same. No wall clock of a worker decides anything.

Silence is all that most can know of a worker. Who knows more need not wait: the parent that has
reaped its process, and any process of the same host that finds its number gone, or given to one
that started later, say so in its row (``processes/identity.py``), and its jobs are taken back at
once. A database session that ended proves nothing: all of them end in a failover, and workers live.

What it stopped so may still be its own in the database's eyes, and a later heartbeat would renew
it for nobody. So each such job is given back, fenced like every write: if it was rescued meanwhile,
that changes nothing. In a lane whose lease is not certain to hold, nothing new is claimed.

A worker that can renew its row but cannot hand in its results is of no use to its jobs: when
handing in has failed for half of the shortest lease, it stops renewing, and the leases end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from coatcheck.crash import crash_point
from coatcheck.domain.catalogue import VersionSpec
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.lanes import Lane, LanePolicy
from coatcheck.processes.identity import this_process
from coatcheck.store import leases
from coatcheck.store.line import Line

_log = logging.getLogger(__name__)
_PATIENCE_SECONDS = 10.0
_CLAIM_BITS = 40
"""Numbers for 34 years of 1,000 claims a second, and for 8 million boots."""


class LeaseKeeper:
    """Renews this worker's leases and knows how long each lane's still hold."""

    def __init__(
        self,
        line: Line,
        registry_line: Line,
        lanes: Mapping[Lane, LanePolicy],
        *,
        name: str,
        version: str,
        endpoints: Sequence[str],
        published: Mapping[str, Sequence[VersionSpec]] | None = None,
        on_cancel: Callable[[UUID], None],
        on_lost: Callable[[Lane], None],
        on_held_again: Callable[[], None],
        handing_in_failed_for: Callable[[], float],
    ) -> None:
        self._line = line
        self._registry_line = registry_line
        self._lanes = dict(lanes)
        self._name = name
        self._version = version
        self._endpoints = list(endpoints)
        self._published = published
        self.temp_dir: Path | None = None
        """What to say at the next registration: where the folders of isolated jobs are."""
        self._on_cancel = on_cancel
        self._on_lost = on_lost
        self._on_held_again = on_held_again
        self._handing_in_failed_for = handing_in_failed_for
        self._shortest = min(policy.ack_seconds for policy in lanes.values())
        self.longest_seconds = max(policy.ack_seconds for policy in lanes.values())
        self.interval = min(5.0, self._shortest / 6)
        self._renewed_at = time.monotonic()
        self._claims = 0
        self.boot = 0

    async def register(self) -> None:
        """Begin a boot: every lease from now on is of this one, and so is what is published."""
        sent_at = time.monotonic()
        self.boot = await leases.register(
            self._registry_line,
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
        await leases.deregister(self._registry_line, self.boot)

    def fresh_lease(self) -> int:
        self._claims += 1
        return self.boot << _CLAIM_BITS | self._claims

    def holds(self, lane: Lane, now: float) -> bool:
        """Whether the lane's jobs are certainly still ours."""
        return now - self._renewed_at < self._lanes[lane].ack_seconds * 2 / 3

    def give_up_what_is_lost(self, now: float) -> None:
        """Stop the lanes whose lease has run out. Before a renewal, too: after a long stop it would
        make the lanes look held again, while their jobs are already somebody else's."""
        for lane in self._lanes:
            if not self.holds(lane, now):
                self._on_lost(lane)

    async def run(self) -> None:
        """Renew until cancelled."""
        sent_at = time.monotonic()
        while True:
            # From when the last one was sent: one that hung has taken the time until the next, and
            # a lane of the shortest lease would be lost for a single one otherwise.
            await asyncio.sleep(max(0.0, sent_at + self.interval - time.monotonic()))
            sent_at = time.monotonic()
            if self._handing_in_failed_for() > self._shortest / 2:
                _log.warning("results cannot be handed in: the leases are left to end")
                continue
            await self.renew()

    async def renew(self) -> None:
        """One heartbeat. One that is missed is nothing; the next may be answered."""
        sent_at = time.monotonic()
        self.give_up_what_is_lost(sent_at)
        try:
            async with asyncio.timeout(self._patience(sent_at)):
                to_cancel = await leases.heartbeat(self._line, self.boot)
        except leases.RegistrationGone:
            # Rescued while we were away, and forgotten; or said to be dead, which should not be.
            # What we hold is lost; begin anew.
            _log.warning("this worker was taken for dead; it registers again")
            self._renewed_at = float("-inf")
            self.give_up_what_is_lost(sent_at)
            await self._register_again()
            return
        except (DatabaseUnavailable, OutcomeUnknown, TimeoutError) as error:
            _log.info("heartbeat not answered: %s", error)
            return
        crash_point("heartbeat.sent")
        self._renewed(sent_at)
        for job_id in to_cancel:
            self._on_cancel(job_id)

    def _patience(self, now: float) -> float:
        """How long a heartbeat may take.

        One that is given up takes its connection with it. To a server that is short of time, a new
        connection and a heartbeat on it can take longer than the next heartbeat is due: given up
        as early as the one before, none would ever be answered, and all that connecting would
        keep the server as busy as it is. With nothing left to lose there is no hurry.
        """
        if any(self.holds(lane, now) for lane in self._lanes):
            return self.interval * 2
        return max(self.interval * 2, _PATIENCE_SECONDS)

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
