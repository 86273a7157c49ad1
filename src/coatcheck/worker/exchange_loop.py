"""The exchange loop: records the outcomes of finished jobs and claims new ones.

While a statement is in flight, handlers go on and their results accumulate; the next statement
records all of them. The loop sends as soon as it has something to send, without a timer, so an idle
worker adds no latency. Few outcomes are recorded by the statement that also claims jobs. Many are
recorded over a connection of their own, while the loop goes on to claim: PostgreSQL completes,
PostgreSQL claims, and handlers run, at the same time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import compress
from operator import attrgetter
from typing import Final
from uuid import UUID

from coatcheck.core.queries import leases
from coatcheck.core.queries.claims import claim_limited
from coatcheck.core.queries.leases import ClaimOrder, FinishedJob, Settlement
from coatcheck.core.queries.limits import sharing
from coatcheck.core.ready_notification import NamedJob
from coatcheck.crash import crash_point
from coatcheck.db.connection import Connection
from coatcheck.db.notifications import CHANGED, Notifier
from coatcheck.domain.bounds import CountedBound
from coatcheck.domain.claim_choice import ClaimRotation
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import CLAIM_ROWS_MAX
from coatcheck.domain.states import State, TransitionEvent
from coatcheck.service import Endpoint
from coatcheck.telemetry import alerts, metrics
from coatcheck.telemetry.event_log import EVENTS
from coatcheck.telemetry.job_stats import NoJobStats, job_stats_of
from coatcheck.worker.lease import LeaseRenewer
from coatcheck.worker.slots import SlotPool

_log = logging.getLogger(__name__)
_SLOTS: Final = CountedBound(
    "slots",
    of="slots of a worker's lane for organisations that already hold some, if there are several "
    "organisations; at least one of two or more is reserved for others",
    over="worker",
    response="the job stays queued; [`explain`](../explanation/why-is-it-waiting.md) says "
    "`lane_full`, and why. Counted once for each claim that only found reserved slots",
    settings=["lane_reserved_percent"],
)

_SUCCESSES_BEFORE_FASTER = 3


class PollInterval:
    """Doubles on each failure, up to a maximum; halves after three successes in a row."""

    def __init__(self, seconds_min: float, seconds_max: float) -> None:
        self._min = seconds_min
        self._max = seconds_max
        self._successes = 0
        self.seconds = seconds_min

    def succeeded(self) -> None:
        self._successes += 1
        if self._successes >= _SUCCESSES_BEFORE_FASTER:
            self._successes = 0
            self.seconds = max(self._min, self.seconds / 2)

    def failed(self) -> None:
        self._successes = 0
        self.seconds = min(self._max, self.seconds * 2)


_lease_of: Final = attrgetter("lease")
_FEW_JOBS = 32
_MANY_JOBS = 64
"""So many jobs are completed by a statement of their own, while others are claimed. With fewer, one
statement does both: it saves a round trip and a commit."""
_UNRECORDED_MAX = 4 * CLAIM_ROWS_MAX
"""While so many outcomes wait to be recorded, no jobs are claimed: should the worker die, they all
run again."""
_TURNS_FOR_SHORT_JOBS = 3
_LOOK_AGAIN_SECONDS_MIN = 0.005
"""If rate tokens become due faster than this, a claim takes several at a time."""
_LOCKED_OUT_SECONDS_MIN = 0.001
"""The first pause after a claim that got nothing because others had locked all work that it found.
They hold it for the length of a statement, so it pays to look again soon."""
_QUIET_SECONDS = 0.05
_FEW_TO_NOTIFY = 8
"""At most so many jobs are completed by a statement that also notifies, and so often at most: until
its commit is on disk it holds a lock of the whole cluster (docs/adr/0011)."""
_IDS_NOTIFIED_MAX = 200
"""A notification names at most this many jobs; with more, it says that any job may have changed."""

Claims = Callable[[Connection, ClaimOrder], Awaitable[list[ClaimedJob]]]
"""Claims jobs in place of the engine's own claim: under the order's lease, and at most
as many jobs of each lane as there is room for. It claims all it can, or sets the order's
``look_again_seconds`` if there may be more, and ``was_locked_out`` if it got nothing of what it
chose. The connection need not wait for the disk."""


class ExchangeLoop:
    """Records finished jobs and claims new ones, until ``stop_asking``."""

    def __init__(
        self,
        db: Connection,
        claim_db: Connection,
        renewer: LeaseRenewer,
        notifier: Notifier,
        slot_pools: Mapping[Lane, SlotPool],
        endpoints: Mapping[str, Endpoint],
        poll: PollInterval,
        *,
        keep_completed_seconds: int,
        keep_failed_seconds: int,
        accept: Callable[[list[ClaimedJob]], None],
        on_ended: Mapping[str, Callable[[ClaimedJob], None]],
        claims: Claims | None = None,
        quiet_seconds: float = _QUIET_SECONDS,
    ) -> None:
        self._db = db
        self._claim_db = claim_db
        self._renewer = renewer
        self._notifier = notifier
        self._slot_pools = slot_pools
        self._served = endpoints
        self._endpoints: list[str] = []
        self._timeouts: list[float] = []
        self._poll = poll
        self._keep_completed_seconds = keep_completed_seconds
        self._keep_failed_seconds = keep_failed_seconds
        self._accept = accept
        self._on_ended = on_ended
        self._claims = claims
        self._quiet_seconds = quiet_seconds
        # Jobs that products run for themselves were submitted by nobody: they are not counted.
        counted = not all(endpoint.internal for endpoint in endpoints.values())
        self._job_stats = job_stats_of(db.database_url) if counted else NoJobStats()
        self._completions: list[FinishedJob] = []
        self._settlements: list[Settlement] = []
        self._turns: dict[str, ClaimRotation] = {}
        self._wake = asyncio.Event()
        self._work_may_wait = True
        self._nothing_waits = False
        """Whether the last look had room for all lanes and found nothing, and nobody has announced
        anything since."""
        self._looked_at = time.monotonic()
        self._named: NamedJob | None = None
        self._notified_at = 0.0
        self._limits_unknown = True
        self._limits_seen_at = 0.0
        self._limited = False
        self._limited_first = False
        self._look_again_at: float | None = None
        self._token_due = False
        self._locked_out = False
        self._locked_out_until: float | None = None
        self._locked_out_seconds = _LOCKED_OUT_SECONDS_MIN
        self._lost_claims: list[int] = []
        self._claims_underway: set[int] = set()
        self._unsure: set[tuple[UUID, int]] = set()
        self._open: dict[int, int] = {}
        """By lease: of how many of its jobs no outcome was accepted yet."""
        self._over: list[int] = []
        """Leases that no job has any more: the next completions delete their claims."""
        self._is_short_of_room = False
        """Whether the last look had no room in some lane."""
        self._completing: asyncio.Task[None] | None = None
        """Completes many jobs, as long as there are many."""
        self._serving = False
        self.rejected = 0
        self._asking = True
        self._failing_since: float | None = None
        self.exclude(())

    # Called by the worker

    def complete(self, completion: FinishedJob) -> None:
        """Record a job that completed, with the next exchange."""
        self._completions.append(completion)
        self._wake.set()

    def settle(self, settlement: Settlement) -> None:
        """Record any other outcome of an attempt."""
        self._settlements.append(settlement)
        self._wake.set()

    def look_for_work(self) -> None:
        """Claim now: jobs may have been queued, or, after a gap, anything may have changed."""
        self._work_may_wait = True
        self._nothing_waits = False
        self._wake.set()

    def look_for_job(self, job: NamedJob) -> None:
        """Claim now: this job was queued."""
        if self._nothing_waits and self._named is None:
            self._named = job
            self._wake.set()
        else:
            self.look_for_work()

    def look_for_limits(self) -> None:
        """Read the limits again and claim: limits may have been set or cleared."""
        self._limits_unknown = True
        self.look_for_work()

    def exclude(self, endpoints: Collection[str]) -> None:
        """Claim jobs of all endpoints but these, until the next call."""
        served = {name: each for name, each in self._served.items() if name not in endpoints}
        self._endpoints = list(served)
        self._timeouts = [each.spec.timeout_seconds for each in served.values()]
        self.look_for_work()

    def release(self, lease: int) -> None:
        """Release the jobs of a lease that no part of this worker knows."""
        self._lost_claims.append(lease)
        self._wake.set()

    def parked(self, job: ClaimedJob) -> None:
        """The job has another lease from now on: a remote runs it."""
        self._close([job])

    def leases(self) -> set[int]:
        """The leases of the claim in flight, of claims to release, and of outcomes to record."""
        jobs = [done.job for done in self._completions]
        jobs += [settlement.job for settlement in self._settlements]
        known = {job.lease for job in jobs} | set(self._lost_claims)
        return known | self._claims_underway

    def stop_asking(self) -> None:
        """Claim no more; keep recording outcomes."""
        self._asking = False
        self._wake.set()

    def failing_for(self) -> float:
        """For how many seconds outcomes could not be recorded."""
        return 0.0 if self._failing_since is None else time.monotonic() - self._failing_since

    @property
    def poll_seconds(self) -> float:
        """The interval at which it claims without a notification."""
        return self._poll.seconds

    @property
    def quiet(self) -> bool:
        """Whether all outcomes are recorded, and no claim is in flight or uncertain."""
        return not (self._serving or self._completing or self._has_something_to_send())

    # The loop

    async def prepare(self) -> None:
        """Have what takes long done before the first job comes."""
        try:
            await leases.plan_exchange(self._db)
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info("the first exchange will be planned when it is sent: %s", error)

    async def run(self) -> None:
        """Exchange until cancelled."""
        try:
            await self._run()
        finally:
            if self._completing is not None:
                self._completing.cancel()
                await asyncio.wait([self._completing])

    async def _run(self) -> None:
        while True:
            await self._wait_for_work()
            try:
                await self.serve_once()
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                self._failed()
                _log.warning(
                    "the database is unreachable; retrying in %.1f s: %s",
                    self._poll.seconds,
                    error,
                )
                await self._pause()
            except Exception:  # noqa: BLE001 - whatever it was, the loop has to go on
                # If the database refuses one job, the worker's other jobs must not fail with it.
                # While this lasts, the leases expire (see lease.py).
                self._failed()
                _log.exception(
                    "the database refused a statement; retrying in %.1f s", self._poll.seconds
                )
                self._drop_expired_results()
                await self._pause()
            else:
                self._poll.succeeded()
                if self._completing is None:
                    self._failing_since = None

    async def serve_once(self) -> None:
        """Record all outcomes, and claim jobs for the free slots. Many jobs that have completed are
        recorded meanwhile: see ``recorded``."""
        only_tokens = self._token_due and not (self._work_may_wait or self._has_something_to_send())
        # What is released waits again, and nobody announces it.
        is_quiet = self._nothing_waits and not (self._lost_claims or self._settlements)
        named, self._named = self._named, None
        self._wake.clear()
        self._work_may_wait = self._token_due = self._nothing_waits = self._locked_out = False
        self._serving = True
        try:
            if self._completing is not None and self._completing.done():
                await self.recorded()
            await self._release_lost_claims()
            if self._settlements:
                await self._send_settlements()
            if is_quiet and await self._serve_quietly(named):
                self._nothing_waits = not self._work_may_wait
                return
            self._looked_at = time.monotonic()
            # They alternate, so that neither limited nor unlimited queues take all the room.
            self._limited_first = not self._limited_first
            found_nothing = False
            if self._claims is not None:
                await self._exchange(room=False)
                await self._claim_with(self._claims)
            elif only_tokens:
                await self._claim_limited()
            elif self._limited_first:
                await self._claim_limited()
                found_nothing = await self._exchange()
            else:
                found_nothing = await self._exchange()
                await self._claim_limited()
            if self._locked_out or not only_tokens:
                self._set_locked_out_until()
            self._nothing_waits = found_nothing and not (
                self._limited or self._locked_out or self._work_may_wait
            )
        finally:
            self._serving = False

    async def recorded(self) -> None:
        """Wait until the many jobs that are being completed are. Raises what failed."""
        completing = self._completing
        if completing is not None:
            try:
                await asyncio.shield(completing)
            finally:
                if completing.done():
                    self._completing = None

    async def _serve_quietly(self, named: NamedJob | None) -> bool:
        """Do the one thing there is to do, while nothing is known to wait: claim the job that a
        notification named, or record the end of a few (docs/adr/0062). False if there is more."""
        if named is None:
            return bool(self._completions) and await self._complete_and_notify()
        return not self._completions and await self._claim_named(named)

    async def _claim_named(self, named: NamedJob) -> bool:
        """Claim one job. False if it still waits, or there is no room for it."""
        order = self._order()
        if named.endpoint not in order.endpoints or not order.has_room_in(named.lane):
            return False
        timeout = order.timeouts[order.endpoints.index(named.endpoint)]
        crash_point("claim.before_statement")
        sent_at = time.monotonic()
        with self._claiming(order):
            claimed, still_waits = await leases.claim_named(
                self._claim_db, named, timeout, order.lease
            )
        metrics.record_claim(time.monotonic() - sent_at, len(claimed))
        self._begin(claimed)
        if claimed:
            await self._let_short_jobs_end()
        return not still_waits

    async def _complete_and_notify(self) -> bool:
        """Record the end of a few jobs, and notify in the same transaction. False if these are
        many, or follow the last ones soon."""
        now = time.monotonic()
        if (
            self._completing is not None
            or len(self._completions) > _FEW_TO_NOTIFY
            or now < self._notified_at + self._quiet_seconds
        ):
            return False
        self._notified_at = now
        completions = self._completions[:]
        await self._complete(
            completions, notify=",".join(each.job.uuid.hex for each in completions)
        )
        return True

    def _failed(self) -> None:
        self._poll.failed()
        if self._failing_since is None:
            self._failing_since = time.monotonic()

    def _drop_expired_results(self) -> None:
        """Drop results that were refused for longer than the longest lease: all are too late."""
        if self.failing_for() > self._renewer.longest_seconds and self._completing is None:
            late = [done.job for done in self._completions]
            late += [settlement.job for settlement in self._settlements]
            for job in late:
                self._too_late(job)
            self._completions.clear()
            self._settlements.clear()

    async def _wait_for_work(self) -> None:
        seconds = self._poll.seconds
        if self._nothing_waits:  # claims of named jobs, however many, do not replace a look
            seconds = max(0.0, self._looked_at + seconds - time.monotonic())
        for_a_token = False
        if self._has_room():
            now = time.monotonic()
            if self._locked_out_until is not None:
                seconds = min(seconds, max(0.0, self._locked_out_until - now))
            if self._look_again_at is not None:
                until_token = max(0.0, self._look_again_at - now)
                for_a_token = until_token < seconds
                seconds = min(seconds, until_token)
        try:
            async with asyncio.timeout(seconds):
                while not self._has_work():
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            self._token_due = for_a_token
            self._work_may_wait = not for_a_token

    def _has_work(self) -> bool:
        if self._has_something_to_send():
            return True
        if self._work_may_wait and self._limits_are_old():
            return True
        return (self._work_may_wait or self._named is not None) and self._has_room()

    def _limits_are_old(self) -> bool:
        """Read them again now and then: who set one may have died before it notified us."""
        return self._limits_unknown or (
            time.monotonic() - self._limits_seen_at >= self._poll.seconds
        )

    def _has_something_to_send(self) -> bool:
        if self._settlements or self._lost_claims:
            return True
        return bool(self._completions) if self._completing is None else self._completing.done()

    async def _pause(self) -> None:
        # New results do not shorten the pause; the return of the database does (see on_gap).
        deadline = time.monotonic() + self._poll.seconds
        while (remaining := deadline - time.monotonic()) > 0 and not self._work_may_wait:
            self._wake.clear()
            try:
                async with asyncio.timeout(remaining):
                    await self._wake.wait()
            except TimeoutError:
                break
        self._work_may_wait = True

    def _has_room(self) -> bool:
        return any(room for room, _ in self._room())

    def _room(self) -> list[tuple[int, set[str] | None]]:
        """The room in each lane; none in a lane whose lease is not certain to hold. If only the
        reserved slots are free, with the organisations that hold slots and cannot have those."""
        now = time.monotonic()
        may_claim = self._asking and len(self._completions) < _UNRECORDED_MAX
        rooms: list[tuple[int, set[str] | None]] = []
        for lane, slots in self._slot_pools.items():
            if not may_claim or not self._renewer.holds(lane, now):
                rooms.append((0, None))
            elif room := slots.room():
                rooms.append((room, None))
            elif room := slots.room_for_newcomers():
                rooms.append((room, slots.holders()))
            else:
                rooms.append((0, None))
        return rooms

    async def _send_settlements(self) -> None:
        batch = self._settlements[:CLAIM_ROWS_MAX]
        with self._recording([settlement.job for settlement in batch]):
            settled = await leases.settle(self._db, batch, self._keep_failed_seconds)
        crash_point("settle.committed_not_notified")
        del self._settlements[: len(batch)]
        ended: Counter[tuple[str, State]] = Counter()
        newest = newest_leases(settlement.job for settlement in batch)
        accepted: list[ClaimedJob] = []
        for settlement in batch:
            job, now = settlement.job, settled.get(settlement.job.uuid)
            if now is None or job.lease != newest[job.uuid]:
                self._too_late(job)
                continue
            accepted.append(job)
            state = now.state
            failed = settlement.event in (TransitionEvent.FAIL, TransitionEvent.RETRY)
            self._job_stats.moved(
                job.org,
                job.lane,
                state,
                code=now.error_code,
                ran_seconds=settlement.ran_seconds if failed else None,
            )
            if state.terminal:
                ended[job.endpoint, state] += 1
                EVENTS.job_ended(
                    job.uuid,
                    job.org,
                    job.endpoint,
                    state,
                    request_id=job.request_id,
                    attempt=job.attempt,
                    seconds=settlement.ran_seconds,
                    error_code=now.error_code,
                )
                if settlement.event is TransitionEvent.RETRY and state is State.FAILED:
                    alerts.sound(job.uuid, job.endpoint, job.request_id)
                self._ended(job)
        for (endpoint, state), jobs in ended.items():
            metrics.record_finished(endpoint, state, jobs)
        self._close(accepted)
        self._settled([settlement.job for settlement in batch])

    async def _exchange(self, *, room: bool = True) -> bool:
        """Record outcomes and claim. Returns whether it had room for all and found nothing."""
        order = self._order(room=room)
        self._is_short_of_room = not all(order.room)
        if any(holders is not None for holders in order.holders):
            metrics.record_bound_met(_SLOTS)
        if self._completing is None and len(self._completions) >= _MANY_JOBS:
            self._completing = asyncio.create_task(self._complete_many(), name="worker completions")
            self._completing.add_done_callback(lambda _: self._wake.set())
        # What accumulates while many are completed goes with them.
        completions = [] if self._completing is not None else self._completions[:_MANY_JOBS]
        if not any(order.room):
            if completions:
                await self._complete(completions)
            return False
        claimed = await self._claim(order, completions)
        if 0 < claimed <= _FEW_JOBS:
            await self._let_short_jobs_end()
        has_room_for_all = all(map(order.has_room_in, order.lanes))
        return has_room_for_all and not (claimed or order.was_locked_out)

    async def _let_short_jobs_end(self) -> None:
        """Handlers that end at once end here, and the next exchange records them instead of the one
        after. With many jobs the next exchange goes first: the server is then busy."""
        for _ in range(_TURNS_FOR_SHORT_JOBS):
            await asyncio.sleep(0)

    async def _complete_many(self) -> None:
        """Complete jobs as long as many have ended. The exchange takes over with fewer."""
        while len(self._completions) >= _MANY_JOBS:
            await self._complete(self._completions[: 2 * CLAIM_ROWS_MAX])
            self._failing_since = None

    async def _complete(self, completions: list[FinishedJob], *, notify: str | None = None) -> None:
        """Complete jobs. ``notify``: the notification of their ends, to be sent with the commit."""
        crash_point("finish.before_statement")
        over = self._over[:CLAIM_ROWS_MAX]
        jobs = [done.job for done in completions]
        with self._recording(jobs):
            if notify is None:
                accepted = await leases.complete(
                    self._db, completions, self._keep_completed_seconds, over
                )
            else:
                accepted = await leases.complete_and_notify(
                    self._db, completions, self._keep_completed_seconds, over, (CHANGED, notify)
                )
        del self._over[: len(over)]
        self._completed(completions, accepted, notify=notify is None)

    async def _claim(self, order: ClaimOrder, completions: list[FinishedJob]) -> int:
        """Claim jobs, and complete a few. Returns how many it claimed."""
        crash_point("finish.before_statement" if completions else "claim.before_statement")
        sent_at = time.monotonic()
        over = self._over[:CLAIM_ROWS_MAX] if self._completing is None else []
        with self._claiming(order), self._recording([done.job for done in completions]):
            claimed, accepted = await leases.exchange(
                # A claim alone need not wait for the disk: see Worker.
                self._db if completions or over else self._claim_db,
                order,
                completions,
                self._keep_completed_seconds,
                over,
            )
        metrics.record_claim(time.monotonic() - sent_at, len(claimed))
        self._take(claimed)
        self._locked_out |= order.was_locked_out
        del self._over[: len(over)]
        if completions:
            self._completed(completions, accepted)
        return len(claimed)

    def _set_locked_out_until(self) -> None:
        """Look again soon after a claim that met only locked work, later each time."""
        if self._locked_out:
            self._locked_out_until = time.monotonic() + self._locked_out_seconds
            self._locked_out_seconds = min(2 * self._locked_out_seconds, self._poll.seconds)
        else:
            self._locked_out_until = None
            self._locked_out_seconds = _LOCKED_OUT_SECONDS_MIN

    async def _claim_with(self, claims: Claims) -> None:
        order = self._order()
        if any(order.room):
            crash_point("claim.before_statement")
            sent_at = time.monotonic()
            with self._claiming(order):
                claimed = await claims(self._claim_db, order)
            metrics.record_claim(time.monotonic() - sent_at, len(claimed))
            self._locked_out |= order.was_locked_out
            self._look_again_in(order.look_again_seconds)
            self._begin(claimed)

    async def _claim_limited(self) -> None:
        if self._limits_are_old():
            self._limits_unknown = False
            self._limits_seen_at = time.monotonic()
            self._limited, shared = await sharing(self._db)
            for slots in self._slot_pools.values():
                slots.share(shared)
        if not self._limited:
            self._look_again_at = None
            return
        order = self._order()
        if any(order.room):
            with self._claiming(order):
                # Durable at once: a limit must hold even if PostgreSQL crashes.
                claimed = await claim_limited(self._db, order)
            self._locked_out |= order.was_locked_out
            self._look_again_in(order.look_again_seconds)
            self._take(claimed)

    def _look_again_in(self, seconds: float | None) -> None:
        """Claim again after ``seconds``, when a rate token is due. None: at the next poll."""
        self._look_again_at = None
        if seconds is not None:
            self._look_again_at = time.monotonic() + max(seconds, _LOOK_AGAIN_SECONDS_MIN)

    @contextmanager
    def _claiming(self, order: ClaimOrder) -> Iterator[None]:
        """If the claim fails, remember its lease: the claim may have been committed anyway."""
        self._claims_underway.add(order.lease)
        try:
            yield
        except BaseException:
            self._lost_claims.append(order.lease)
            raise
        finally:
            self._claims_underway.discard(order.lease)

    @contextmanager
    def _recording(self, jobs: list[ClaimedJob]) -> Iterator[None]:
        """If the answer is lost, remember the jobs: their outcomes may have been committed."""
        try:
            yield
        except OutcomeUnknown:
            self._unsure.update((job.uuid, job.lease) for job in jobs)
            raise

    async def _release_lost_claims(self) -> None:
        while self._lost_claims:
            lease = self._lost_claims[-1]
            released = await leases.release_claim(self._db, lease, self._keep_failed_seconds)
            self._lost_claims.remove(lease)  # others may have been added meanwhile
            if released:
                _log.info("released %d jobs of a claim whose answer was lost", len(released))
                self._notify(released)

    def _order(self, *, room: bool = True) -> ClaimOrder:
        rooms = self._room() if room else [(0, None)] * len(self._slot_pools)
        return ClaimOrder(
            lanes=[lane.value for lane in self._slot_pools],
            room=[places for places, _ in rooms],
            endpoints=self._endpoints,
            timeouts=self._timeouts,
            lease=self._renewer.fresh_lease(),
            turns=self._turns,
            holders=[holders for _, holders in rooms],
        )

    def _take(self, claimed: list[ClaimedJob]) -> None:
        if claimed:
            self._work_may_wait = True  # there may be more
            self._begin(claimed)

    def _begin(self, claimed: list[ClaimedJob]) -> None:
        if claimed:
            self._open[claimed[0].lease] = len(claimed)
            crash_point("claim.committed_not_dispatched")
            self._job_stats.started(claimed)
            self._accept(claimed)

    def _completed(
        self, completions: list[FinishedJob], accepted: set[UUID], *, notify: bool = True
    ) -> None:
        """The statement that sent these has committed. ``accepted`` are those that it completed."""
        crash_point("finish.committed_not_notified")
        metrics.record_finish_flush(len(completions))
        del self._completions[: len(completions)]
        if self._is_short_of_room or self._limited or self._claims is not None:
            self.look_for_work()  # others may take the places of these, and nobody announces them
        jobs = sent = [done.job for done in completions]
        ran_seconds = [done.ran_seconds for done in completions]
        if len(accepted) < len(sent):
            newest = newest_leases(sent)
            in_time = [job.uuid in accepted and job.lease == newest[job.uuid] for job in sent]
            jobs = list(compress(sent, in_time))
            ran_seconds = list(compress(ran_seconds, in_time))
            for job, was_in_time in zip(sent, in_time, strict=True):
                if not was_in_time:
                    self._too_late(job)
        self._close(jobs)
        self._job_stats.completed(jobs, ran_seconds)
        if EVENTS.is_on:
            EVENTS.jobs_completed(jobs, ran_seconds)
        ran: defaultdict[str, list[float]] = defaultdict(list)
        for job, seconds in zip(jobs, ran_seconds, strict=True):
            ran[job.endpoint].append(seconds)
        for endpoint, of_endpoint in ran.items():
            metrics.record_attempts(endpoint, of_endpoint)
            metrics.record_finished(endpoint, State.COMPLETED, len(of_endpoint))
        if not self._on_ended.keys().isdisjoint(ran):
            for job in jobs:
                self._ended(job)
        self._settled(sent, notify=notify)

    def _ended(self, job: ClaimedJob) -> None:
        callback = self._on_ended.get(job.endpoint)
        if callback is not None:
            callback(job)

    def _close(self, jobs: list[ClaimedJob]) -> None:
        """The database has accepted the outcomes of these jobs: none has its lease any more.

        Only that is proof. An outcome may be refused although the job still has its lease, so a
        lease of which one was refused is left to the sweep (``maintenance/sweep_claims``).
        """
        for lease, ended in Counter(map(_lease_of, jobs)).items():
            if (rest := self._open.get(lease)) is not None:
                self._open[lease] = rest - ended
                if rest == ended:
                    del self._open[lease]
                    self._over.append(lease)

    def _too_late(self, job: ClaimedJob) -> None:
        self._open.pop(job.lease, None)
        if (job.uuid, job.lease) in self._unsure:
            # Sent before, and the answer was lost: most likely it was accepted then.
            return
        self.rejected += 1
        metrics.record_refused_result()
        _log.warning(
            "a result came too late: this worker no longer held the job",
            extra={
                "job_id": to_text(job.uuid),
                "endpoint": job.endpoint,
                "request_id": job.request_id,
            },
        )

    def _settled(self, jobs: list[ClaimedJob], *, notify: bool = True) -> None:
        if self._unsure:
            self._unsure.difference_update((job.uuid, job.lease) for job in jobs)
        if notify:
            self._notify([job.uuid for job in jobs[: _IDS_NOTIFIED_MAX + 1]])

    def _notify(self, job_ids: list[UUID]) -> None:
        few = len(job_ids) <= _IDS_NOTIFIED_MAX
        self._notifier.notify(CHANGED, [job_id.hex for job_id in job_ids] if few else None)


def newest_leases(jobs: Iterable[ClaimedJob]) -> dict[UUID, int]:
    """The lease of each job under which it can be held: that of this worker's latest claim.

    A worker has two claims of a job if a crash of PostgreSQL undid the first one. An answer of the
    database for the job's id then belongs to the later one.
    """
    newest: dict[UUID, int] = {}
    for job in jobs:
        newest[job.uuid] = max(job.lease, newest.get(job.uuid, 0))
    return newest
