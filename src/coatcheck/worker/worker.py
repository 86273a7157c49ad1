"""The worker process: claims jobs, runs them and records their outcomes. It opens no listening
socket."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import assert_never
from uuid import UUID

from coatcheck.blobs import BlobContainer
from coatcheck.core.process_metrics import JobStatsRecorder
from coatcheck.core.queries import leases
from coatcheck.core.queries.leases import FinishedJob, Settlement
from coatcheck.core.queries.limits import declare_limits
from coatcheck.core.queries.services import list_published
from coatcheck.core.ready_notification import named_job
from coatcheck.core.remote.calls import RemoteCalls
from coatcheck.crash import crash_point
from coatcheck.db.connection import PINNED_PLANS
from coatcheck.db.database import Database
from coatcheck.db.notifications import CANCEL, CHANGED, READY
from coatcheck.domain.catalogue import conflicts_of, described
from coatcheck.domain.errors import (
    BlobStoreUnavailable,
    DatabaseUnavailable,
    OutcomeUnknown,
    SettingsInvalid,
)
from coatcheck.domain.failures import CoreFailure
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.retry import JOB_BACKOFF, UNREACHABLE_BACKOFF
from coatcheck.domain.states import (
    Cancelled,
    Completed,
    Failed,
    Interrupted,
    Outcome,
    Parked,
    Postponed,
    Retryable,
    TransitionEvent,
    Unreachable,
)
from coatcheck.job import Job
from coatcheck.process_access import close_to_others
from coatcheck.service import Endpoint, Service
from coatcheck.settings import Settings
from coatcheck.telemetry import context, metrics, tracing
from coatcheck.version import __version__
from coatcheck.worker.exchange_loop import Claims, ExchangeLoop, PollInterval, newest_leases
from coatcheck.worker.execution import Executors
from coatcheck.worker.executors.thread import ABANDONED_THREADS
from coatcheck.worker.lease import LeaseReconciler, LeaseRenewer
from coatcheck.worker.reports import JobReporter, ReportWriter
from coatcheck.worker.slots import RunningJob, SlotPool, StopReason
from coatcheck.worker.temp_dirs import TempRoot

_log = logging.getLogger(__name__)
WATCH_SECONDS = 0.05
_TIDY_SECONDS = 30.0
_HELD_THREADS_SECONDS = 1.0
CANCEL_GRACE_SECONDS = 5.0
"""How long a handler may take to stop after a cancellation request, before it is interrupted."""
STOP_AGAIN_SECONDS = 5.0
"""A handler that swallowed its interruption is interrupted again after this long."""
DRAIN_STOP_SECONDS = 6.0
"""How long interrupted handlers may take at the end of a drain: isolated processes have a grace
period of their own."""


class Worker:
    """Runs the jobs of some services until it is stopped.

    >>> worker = Worker(settings, [docs])
    >>> await worker.run()          # worker.stop() drains and ends it

    ``on_ended`` has a callback per endpoint, called for each job whose end this worker has
    committed. ``claims`` replaces the engine's own way to claim jobs. ``remote_calls`` starts
    remote work for handlers. ``also_published`` are services of another worker in the process,
    published together with this one's. ``database`` has the connections that all workers of a
    process share; whoever made it closes it.
    """

    def __init__(
        self,
        settings: Settings,
        services: Iterable[Service],
        *,
        name: str = "",
        on_ended: Mapping[str, Callable[[ClaimedJob], None]] = MappingProxyType({}),
        claims: Claims | None = None,
        remote_calls: RemoteCalls | None = None,
        also_published: Iterable[Service] = (),
        database: Database | None = None,
    ) -> None:
        self._settings = settings
        self._remote_calls = remote_calls
        services = list(services)
        known = [*services, *also_published]
        self._published = {
            name: [service.spec for service in known if service.name == name]
            for name in {service.name for service in known if service.published}
        }
        self._endpoints: dict[str, Endpoint] = {
            endpoint.name: endpoint
            for service in services
            for endpoint in service.endpoints.values()
        }
        if not self._endpoints:
            raise SettingsInvalid("a worker needs at least one service with an endpoint")
        self._owns_database = database is None
        self._database = database = database or Database.of_worker(settings.database_url)
        self._claim_db = database.claim
        self._report_db = database.pooled("worker reports", server_settings=PINNED_PLANS)
        self._notifier = database.notifier
        self._slot_pools = {
            lane: SlotPool(policy.concurrency, self._run, reserved=policy.reserved)
            for lane, policy in settings.lanes.items()
            if policy.concurrency > 0
        }
        self._renewer = LeaseRenewer(
            database.heartbeat,
            # Waits for the lock of the catalogue, while other workers of the process exchange. Not
            # with an asynchronous commit: a boot number that is lost in a crash of PostgreSQL could
            # be given out twice.
            database.pooled("worker registration", is_long=True),
            settings.lanes,
            name=name or f"{socket.gethostname()}:{os.getpid()}",
            version=__version__,
            endpoints=list(self._endpoints),
            published=self._published,
            on_cancel=self._cancel,
            on_lost=self._lose,
            on_held_again=self.look_for_work,
            recording_failed_for=self._recording_failed_for,
        )
        self._exchange = ExchangeLoop(
            database.exchange,
            self._claim_db,
            self._renewer,
            self._notifier,
            self._slot_pools,
            self._endpoints,
            PollInterval(settings.poll_seconds_min, settings.poll_seconds_max),
            keep_completed_seconds=settings.keep_completed_seconds,
            keep_failed_seconds=settings.keep_failed_seconds,
            accept=self._accept,
            on_ended=on_ended,
            claims=claims,
        )
        self._stats_recorder = JobStatsRecorder(self._report_db)
        self._reports = ReportWriter(self._report_db, self._notifier, self._open_blobs)
        self._subscription = database.listener.subscribe(
            {READY: self._heard_ready, CANCEL: self._heard_cancel},
            on_gap=self._exchange.look_for_limits,
        )
        self._running: set[RunningJob] = set()
        self._reconciler = LeaseReconciler(
            self._report_db,
            boot=lambda: self.boot,
            running=lambda: self._running,
            known=self._leases,
            lose=lambda running: running.stop(StopReason.LOST, time.monotonic()),
            release=self._exchange.release,
        )
        self._threads_held: dict[str, int] = {}
        """Endpoints whose jobs are not claimed now, with the number of threads that cause it."""
        self._start_reported = asyncio.Event()
        self._stopping = asyncio.Event()
        self._closing = False
        self.ready = asyncio.Event()
        """Set once the worker claims jobs."""
        self._executors: Executors | None = None
        self._blobs: BlobContainer | None = None

    @property
    def boot(self) -> int:
        return self._renewer.boot

    @property
    def rejected(self) -> int:
        """How many results arrived too late and were refused."""
        return self._exchange.rejected

    def _recording_failed_for(self) -> float:
        return self._exchange.failing_for()

    def stop(self) -> None:
        """Start draining: claim no more, let running jobs end within the grace period, return."""
        self._stopping.set()

    def look_for_work(self) -> None:
        """Claim now: there may be jobs without a notification."""
        self._exchange.look_for_work()

    async def run(self) -> None:
        """Work until ``stop``; then drain and return."""
        if any(endpoint.kind == "isolated" for endpoint in self._endpoints.values()):
            close_to_others()  # isolated handlers run as this user, and must not read its secrets
        temp_root = TempRoot(self._settings.temp_dir)
        self._renewer.temp_dir = temp_root.directory
        self._executors = executors = Executors(self._settings, temp_root)
        try:
            # Registering publishes: once this worker shows as registered, its services work.
            for step in (self._declare_limits, self._renewer.register, self._log_conflicts):
                if not await self._retried_step(step):
                    return await self._close_connections()
            await self._subscription.start()
            await self._exchange.prepare()
            loops = [
                asyncio.create_task(loop, name=f"worker {name}")
                for name, loop in (
                    ("exchange", self._exchange.run()),
                    ("lease", self._renewer.run()),
                    ("watch", self._watch()),
                    ("starts", self._run_start_recorder()),
                    ("lease reconciler", self._reconciler.run(self._renewer.interval)),
                    ("tidy", self._tidy(temp_root)),
                    ("threads", self._store_held_threads()),
                )
            ]
            self._stats_recorder.start()
            _log.info("worker ready", extra={"boot": self.boot, "endpoints": list(self._endpoints)})
            self.ready.set()
            try:
                await self._until_stopped(loops)
                await self._drain()
            finally:
                for loop in loops:
                    loop.cancel()
                await asyncio.gather(*loops, return_exceptions=True)
                metrics.forget_worker(self)
                await self._close()
        finally:
            executors.close()
            temp_root.close()

    async def _retried_step(self, step: Callable[[], Awaitable[None]]) -> bool:
        """Run a step of the start, and retry it while the database is unreachable: another worker
        of this process may already be running, and must not lose its jobs because this start
        failed. False if this worker was stopped first."""
        while True:
            try:
                await step()
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                if self._stopping.is_set():
                    _log.info("stopped while the database was unreachable: %s", error)
                    return False
                _log.warning("waiting for the database to start the worker: %s", error)
            else:
                return True
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.poll_seconds_min):
                    await self._stopping.wait()

    async def _declare_limits(self) -> None:
        """Declare the limits of unpublished endpoints. Published ones include their limit."""
        await declare_limits(
            self._report_db,
            {
                name: endpoint.spec.concurrency
                for name, endpoint in self._endpoints.items()
                if endpoint.spec.service not in self._published
            },
        )

    async def _log_conflicts(self) -> None:
        """Log once which endpoints other live workers publish with a different definition."""
        if not self._published:
            return
        published = await list_published(self._report_db)
        conflicts = [each for each in conflicts_of(published) if self.boot in each.boots]
        if conflicts:
            _log.warning(
                "live workers publish different definitions of %s; the newest of each applies",
                described(conflicts),
                extra={"endpoints": [conflict.endpoint for conflict in conflicts]},
            )

    async def _until_stopped(self, loops: Sequence[asyncio.Task[None]]) -> None:
        stopping = asyncio.create_task(self._stopping.wait())
        done, _ = await asyncio.wait([stopping, *loops], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        for ended in done - {stopping}:
            ended.result()  # a loop never ends by itself: raise the error that ended it

    # Claimed work

    def _accept(self, jobs: list[ClaimedJob]) -> None:
        if self._stopping.is_set():
            # From a claim that was in flight when the drain began.
            for job in jobs:
                self._record(job, Interrupted(), 0.0)
            return
        by_lane: dict[Lane, list[ClaimedJob]] = {}
        for job in jobs:
            by_lane.setdefault(job.lane, []).append(job)
        for lane, lane_jobs in by_lane.items():
            self._slot_pools[lane].give(lane_jobs)

    async def _run(self, claimed: ClaimedJob, task: asyncio.Task[None]) -> None:
        """Run one attempt of a job in ``task``, from its first step to its outcome."""
        endpoint = self._endpoints[claimed.endpoint]
        reporter = JobReporter(self._reports, claimed)
        job = Job(
            claimed.uuid,
            claimed.org,
            claimed.endpoint,
            claimed.lane,
            claimed.attempt,
            len(claimed.payload),
            claimed.request_id,
            reporter,
        )
        assert self._executors is not None
        started_at = time.monotonic()
        timeout = claimed.timeout_seconds or endpoint.spec.timeout_seconds
        running = RunningJob(
            claimed,
            job,
            task,
            started_at,
            started_at + timeout,
            shown_from=None if endpoint.starts_itself else started_at,
        )
        if endpoint.starts_itself:
            job.tell_start(partial(self._handler_started, running))
        if self._remote_calls is not None:
            job.hand_over_through(partial(self._remote_calls.spawn, claimed))
        self._running.add(running)
        context.job_id.set(claimed.uuid)
        if claimed.request_id != context.request_id.get():  # rare, and cheaper than setting it
            context.request_id.set(claimed.request_id)
        crash_point("run.before_handler")
        try:
            if claimed.traceparent is None and not tracing.is_on():
                outcome = await self._executors.run(endpoint, job, claimed.payload)
            else:
                outcome = await self._run_traced(endpoint, job, claimed)
            if isinstance(outcome, Interrupted):
                self._look_at_threads()  # before it is released: it would be claimed again at once
            crash_point("run.handler_returned")
            if endpoint.starts_itself and not running.marked:
                # It may have ended right after it began; webhooks for every state need both.
                await self._record_starts(time.monotonic())
                # If that found it lost, the interruption must hit this job, not the slot's next.
                await asyncio.sleep(0)
            if reporter.used:
                await self._reports.settle(claimed)
        except asyncio.CancelledError:
            if running.stop_reason is None and self._closing:
                raise
            running.over = True
            outcome = (
                # Nobody interrupted it: it cancelled its own task, which is a handler error.
                Retryable(
                    CoreFailure.HANDLER_ERROR, "CancelledError: the handler cancelled its own task"
                )
                if running.stop_reason is None
                else self._stopped(running.stop_reason, timeout)
            )
            if reporter.used:
                await self._reports.settle_stopped(claimed)
        except BlobStoreUnavailable as error:
            # Whatever the handler did about it: an unavailable store is not the handler's fault.
            _log.warning("the job's attachment could not be stored: %s", error)
            outcome = Unreachable(f"the job's attachment could not be stored: {error}")
        except Exception as error:  # noqa: BLE001 - whatever storing an attachment raised
            _log.exception("the job's reports could not be stored")
            outcome = Retryable(CoreFailure.REPORT_NOT_STORED, type(error).__name__)
        finally:
            self._running.discard(running)
            # All of them: the slot's next job must not inherit this one's interruption.
            while task.cancelling():
                task.uncancel()
        if running.stop_reason is not None:
            if running.stop_reason is StopReason.GIVEN_BACK:
                self._reports.forget(claimed)
                return
            if running.stop_reason is StopReason.LOST:
                # The lease may still be renewed, and then nobody would rescue the job. So it is
                # released; if somebody else holds it by now, that changes nothing.
                self._reports.forget(claimed)
                outcome = Interrupted()
        if isinstance(outcome, Parked):
            self._reports.forget(claimed)
            self._exchange.parked(claimed)
            # No outcome is recorded that would trigger a claim, and a slot is free.
            asyncio.get_running_loop().call_soon(self._exchange.look_for_work)
            return
        elif isinstance(outcome, Cancelled) and running.cancel_asked_at is None:
            outcome = Retryable(
                CoreFailure.HANDLER_ERROR, "JobCancelled: nobody asked for cancellation"
            )
        self._record(claimed, outcome, time.monotonic() - started_at)

    async def _run_traced(self, endpoint: Endpoint, job: Job, claimed: ClaimedJob) -> Outcome:
        """Run one attempt as part of the trace that its job was submitted with."""
        assert self._executors is not None
        with tracing.span(
            f"run {claimed.endpoint}",
            "consumer",
            claimed.traceparent,
            {
                "coatcheck.job.id": job.id,
                "coatcheck.org": claimed.org,
                "coatcheck.endpoint": claimed.endpoint,
                "coatcheck.lane": claimed.lane.value,
                "coatcheck.attempt": claimed.attempt,
                "coatcheck.waited_seconds": claimed.waited_seconds,
            },
        ) as part:
            outcome = await self._executors.run(endpoint, job, claimed.payload)
            part.note({"coatcheck.outcome": type(outcome).__name__.lower()})
            if isinstance(outcome, Failed | Retryable):
                part.failed(outcome.code)
            return outcome

    def _stopped(self, reason: StopReason, timeout: float) -> Outcome:
        match reason:
            case StopReason.TIMEOUT:
                return Retryable(CoreFailure.TIMED_OUT, f"ran for longer than {timeout:g} s")
            case StopReason.CANCEL:
                return Cancelled()
            case StopReason.DRAIN | StopReason.LOST | StopReason.GIVEN_BACK:
                return Interrupted()
            case _:
                assert_never(reason)

    def _record(self, job: ClaimedJob, outcome: Outcome, ran: float) -> None:
        """Turn the outcome of an attempt into an event. This is the only place that does."""
        code: str | None = None
        message: str | None = None
        delay = 0.0
        match outcome:
            case Completed(result):
                self._exchange.complete(FinishedJob(job, result, ran))
                return
            case Parked():
                return  # the worker no longer holds it
            case Failed(code, message):
                event = TransitionEvent.FAIL
            case Retryable(code, message, after):
                event = TransitionEvent.RETRY
                delay = JOB_BACKOFF.delay(job.failures, random.random()) if after is None else after
            case Unreachable(message, after):
                event, code = TransitionEvent.UNREACHABLE, CoreFailure.TARGET_UNREACHABLE
                if after is None:
                    after = UNREACHABLE_BACKOFF.delay(job.unreachables, random.random())
                delay = after
            case Postponed(code, message, delay):
                event = TransitionEvent.POSTPONE
            case Interrupted():
                event = TransitionEvent.RELEASE
            case Cancelled():
                event = TransitionEvent.ACKNOWLEDGE_CANCEL
            case _:
                assert_never(outcome)
        self._exchange.settle(Settlement(job, event, code, message, delay, ran))

    # Notifications

    def _heard_ready(self, payload: str) -> None:
        if not payload:
            self._exchange.look_for_limits()
        elif (job := named_job(payload)) is not None:
            if job.endpoint in self._endpoints:
                self._exchange.look_for_job(job)
        elif any(endpoint in self._endpoints for endpoint in payload.split(",")):
            self._exchange.look_for_work()

    def _heard_cancel(self, payload: str) -> None:
        for word in payload.split(","):
            boot, _, job_id = word.partition(":")
            if boot == str(self.boot):
                self._cancel(UUID(hex=job_id))

    def _cancel(self, job_id: UUID) -> None:
        now = time.monotonic()
        for running in self._running:  # of two claims of one job, only the later one counts
            if running.claimed.uuid == job_id:
                running.ask_to_stop(now)
        for pool in self._slot_pools.values():
            not_begun = pool.take_out(job_id)
            if not_begun is not None:
                self._record(not_begun, Cancelled(), 0.0)

    # Supervision of running jobs

    async def _watch(self) -> None:
        """Supervise running jobs. It never waits for the database, so it works without one."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            now = time.monotonic()
            self._renewer.stop_lost_lanes(now)
            self._stop_overdue(now)
            self._release_stuck(now)
            self._look_at_threads()
            for lane, pool in self._slot_pools.items():
                metrics.set_running(lane, pool.busy, worker=self)
                metrics.record_started(lane, pool.begun())
            metrics.set_poll_seconds(self._exchange.poll_seconds, worker=self)

    def _look_at_threads(self) -> None:
        """Claim no jobs of endpoints whose handlers do not stop, until some of them have."""
        assert self._executors is not None
        metrics.set_abandoned_threads(self._executors.abandoned_threads, worker=self)
        held = {
            name: threads
            for name, endpoint in self._endpoints.items()
            if (threads := self._executors.threads_held_against(endpoint))
        }
        if held.keys() != self._threads_held.keys():
            self._exchange.exclude(held)
            for name in held.keys() - self._threads_held.keys():
                metrics.record_bound_met(ABANDONED_THREADS)
                _log.warning(
                    "%d handlers did not stop in time and hold a thread each: this worker starts "
                    "no more jobs of %s until some of them have stopped. A function that may hang "
                    "needs isolated=True",
                    held[name],
                    name,
                )
            for name in self._threads_held.keys() - held.keys():
                _log.info("starting jobs of %s again: handlers have stopped", name)
        self._threads_held = held

    async def _store_held_threads(self) -> None:
        """Store the held threads in the database, which explains to callers why a job waits."""
        stored: tuple[int, dict[str, int]] = (self.boot, {})
        while True:
            await asyncio.sleep(_HELD_THREADS_SECONDS)
            now = (self.boot, self._threads_held)
            if now == stored:
                continue
            try:
                await leases.set_held_threads(self._report_db, *now)
            except (DatabaseUnavailable, OutcomeUnknown) as error:
                _log.info("held threads not stored yet: %s", error)
            else:
                stored = now

    def _lose(self, lane: Lane) -> None:
        """The lane's lease has expired: nothing that its jobs do counts any more."""
        pool = self._slot_pools.get(lane)
        if pool is None:
            return
        now = time.monotonic()
        abandoned = pool.take_back()
        for job in abandoned:
            self._record(job, Interrupted(), 0.0)
        lost = [
            running
            for running in self._running
            if running.claimed.lane is lane and running.stop_reason is not StopReason.LOST
        ]
        for running in lost:
            running.stop_reason = None
            running.stop(StopReason.LOST, now)
        if abandoned or lost:
            _log.warning(
                "the lease expired: stopped %d running and dropped %d waiting jobs",
                len(lost),
                len(abandoned),
                extra={"lane": lane.value},
            )

    def _stop_overdue(self, now: float) -> None:
        for running in self._running:
            if running.stop_reason is not None:
                if now - running.stopped_at > STOP_AGAIN_SECONDS:
                    running.stop(running.stop_reason, now)
            elif now >= running.deadline:
                running.stop(StopReason.TIMEOUT, now)
            elif (
                running.cancel_asked_at is not None
                and now - running.cancel_asked_at >= CANCEL_GRACE_SECONDS
            ):
                running.stop(StopReason.CANCEL, now)

    def _release_stuck(self, now: float) -> None:
        """Release jobs claimed ahead, on the assumption that all are short, that wait behind long
        ones."""
        for pool in self._slot_pools.values():
            for job in pool.take_back_stuck(now):
                self._record(job, Interrupted(), 0.0)

    def _handler_started(self, running: RunningJob) -> None:
        """Called by a handler that reports its own start."""
        if running.shown_from is None:
            running.shown_from = time.monotonic()
            self._start_reported.set()

    async def _run_start_recorder(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS):
                    await self._start_reported.wait()
            self._start_reported.clear()
            await self._record_starts(time.monotonic())

    async def _record_starts(self, now: float) -> None:
        due = [
            running
            for running in self._running
            if not running.marked and self._is_to_be_shown(running, now)
        ]
        if not due:
            return
        try:
            held = await leases.mark_started(
                # Not on the connection for reports: the job's first report would wait for it.
                self._claim_db,
                [(r.claimed, now - (r.shown_from or now)) for r in due],
            )
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info("starts not recorded yet: %s", error)
            return
        crash_point("mark_started.committed")
        if held:
            self._notifier.notify(CHANGED, {job_id.hex for job_id in held})
        newest = newest_leases(running.claimed for running in due)
        for running in due:
            running.marked = True
            job = running.claimed
            is_held = job.uuid in held and job.lease == newest[job.uuid]
            # One that is already being stopped has its grace period: a second stop would cut it.
            if not is_held and running.stop_reason is None and running in self._running:
                running.stop(StopReason.LOST, now)

    def _is_to_be_shown(self, running: RunningJob, now: float) -> bool:
        """Whether its handler has run for a while, or has reported its start."""
        if running.shown_from is None:
            return False
        reports_itself = self._endpoints[running.claimed.endpoint].starts_itself
        return reports_itself or now - running.shown_from >= WATCH_SECONDS

    def _leases(self) -> set[int]:
        """Every lease that this worker knows of."""
        known = self._exchange.leases() | {running.claimed.lease for running in self._running}
        return known.union(*(pool.leases() for pool in self._slot_pools.values()))

    async def _tidy(self, temp_root: TempRoot) -> None:
        """Remove what dead workers on this machine left behind: at boot, then periodically."""
        while True:
            await asyncio.to_thread(temp_root.sweep)
            await asyncio.sleep(_TIDY_SECONDS)

    # Shutdown

    async def _drain(self) -> None:
        """Claim no more; release jobs that have not begun; let the rest end, or release it too."""
        _log.info("draining", extra={"running": len(self._running)})
        self._exchange.stop_asking()
        crash_point("drain.before_release")
        for pool in self._slot_pools.values():
            for job in pool.take_back():
                self._record(job, Interrupted(), 0.0)
        await self._while_running(self._settings.drain_seconds)
        now = time.monotonic()
        for running in self._running:
            running.stop(StopReason.DRAIN, now)
        await self._while_running(DRAIN_STOP_SECONDS)
        # Handlers that will not stop: their jobs go back, and whatever they still do is refused.
        for running in list(self._running):
            running.stop_reason = StopReason.GIVEN_BACK
            self._record(running.claimed, Interrupted(), 0.0)
        await self._until_recorded()
        crash_point("drain.released_not_deregistered")

    async def _while_running(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (  # noqa: ASYNC110 - two things to wait for, and a deadline
            self._running or not self._exchange.quiet
        ) and time.monotonic() < deadline:
            await asyncio.sleep(WATCH_SECONDS)

    async def _until_recorded(self) -> None:
        while not self._exchange.quiet:
            if self._exchange.failing_for() > self._settings.drain_seconds:
                _log.error("the database is unreachable: the leases will expire by themselves")
                return
            await asyncio.sleep(WATCH_SECONDS)

    async def _close(self) -> None:
        self._closing = True
        for pool in self._slot_pools.values():
            await pool.close()
        await self._subscription.stop()
        await self._notifier.drain()
        await self._stats_recorder.stop()
        try:
            await self._renewer.deregister()
        except (DatabaseUnavailable, OutcomeUnknown) as error:
            _log.info("not deregistered: %s", error)
        await self._close_connections()

    async def _close_connections(self) -> None:
        if self._owns_database:
            await self._database.close()

    def _open_blobs(self) -> BlobContainer:
        if self._blobs is None:
            self._blobs = BlobContainer.open(self._settings.blob_url)
        return self._blobs
