"""The oracle: what jobs are after each thing that happens to them, in plain Python.

Time is counted in units since the history began. Nothing here asks the database: rows are compared
with it (job_comparison.py). What an event does to a state is the domain's table; everything else a
move brings with it is written down here a second time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final
from uuid import UUID

from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import CRASHES_MAX, CRASHES_TOGETHER_MAX
from coatcheck.domain.states import State, TransitionEvent, after
from tests.db.claimer import KEEP_COMPLETED_SECONDS, KEEP_FAILED_SECONDS
from tests.properties.stepped_deployment import CRASH_UNITS, LEASE_UNITS, UNIT_SECONDS

RAN_UNITS: Final = 0.5 / UNIT_SECONDS
"""What every attempt is said to have taken."""
KEEP_COMPLETED_UNITS: Final = KEEP_COMPLETED_SECONDS / UNIT_SECONDS
KEEP_FAILED_UNITS: Final = KEEP_FAILED_SECONDS / UNIT_SECONDS
TIMEOUT_UNITS: Final = 60.0 / UNIT_SECONDS
"""What the worker allows where the job does not say."""
FORGOTTEN_AFTER_UNITS: Final = 2 * max(LEASE_UNITS.values())

_OUTCOMES: Final = {
    TransitionEvent.RELEASE: "interrupted",
    TransitionEvent.UNREACHABLE: "target_unreachable",
    TransitionEvent.POSTPONE: "postponed",
    TransitionEvent.ACKNOWLEDGE_CANCEL: "cancelled",
    TransitionEvent.FAIL: "failed",
    TransitionEvent.RETRY: "failed",
}
_ALERTING: Final = ("max_retries_exhausted", "worker_lost")


@dataclass
class ModelJob:
    """A job as it should be."""

    org: str
    uuid: UUID
    lane: Lane
    endpoint: str
    queue_key: str
    payload: bytes | None
    failures_max: int
    created_at: float
    run_at: float
    key: str | None = None
    start_deadline: float | None = None
    timeout: float | None = None
    keep_completed: float | None = None
    keep_failed: float | None = None
    keeps_input: bool = True
    tells: Mapping[UUID, int] = field(default_factory=dict)
    retry_of: UUID | None = None
    run: UUID | None = None
    """Of a task: the run it belongs to."""
    task_index: int | None = None
    state: State = State.QUEUED
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    unreachables: int = 0
    lease: int | None = None
    dispatched_at: float | None = None
    started_at: float | None = None
    run_deadline: float | None = None
    finished_at: float | None = None
    expires_at: float | None = None
    run_units: float = 0.0
    error_code: str | None = None
    result: bytes | None = None
    progress: float | None = None
    progress_note: str | None = None
    said: Counter[tuple[object, ...]] = field(default_factory=Counter)
    """Its events: log lines, attempts that did not complete, alerts."""

    @property
    def attempts(self) -> int:
        return self.failures + self.crashes

    @property
    def boot(self) -> int | None:
        return None if self.lease is None else self.lease >> 40

    @property
    def ran_from(self) -> float | None:
        return self.dispatched_at if self.started_at is None else self.started_at


@dataclass
class ModelWorker:
    """A boot of a worker, and when it was last heard of."""

    boot: int
    seen_at: float


Told = tuple[str, UUID, UUID, str, str, str, int, str | None]
"""A row of the outbox: org, target, subject, event, state, state before, attempt, error code."""


@dataclass
class Used:
    """What the jobs of one flow have used by the time they ended."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    attempts: int = 0
    payload_bytes: int = 0
    result_bytes: int = 0


class JobModel:
    """All jobs there should be, and all that should have come of them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.jobs: dict[UUID, ModelJob] = {}
        self.workers: dict[int, ModelWorker] = {}
        self.limits: dict[tuple[str, str, str], int] = {}
        self.listeners: dict[str, Mapping[UUID, frozenset[str]]] = {}
        """The endpoints of organisations, and what they want to be told of."""
        self.told: Counter[Told] = Counter()
        self.used: dict[tuple[str, str, str], Used] = {}
        self.ends: Counter[UUID] = Counter()
        self.edges: Counter[tuple[State, State]] = Counter()

    # Looking

    def having(self, *states: State) -> list[ModelJob]:
        """The jobs in one of these states, in the order in which they were handed in."""
        return [job for job in self.jobs.values() if job.state in states]

    def held(self) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.lease is not None]

    def live(self) -> list[ModelJob]:
        return [job for job in self.jobs.values() if not job.state.terminal]

    def holder_of(self, claimed: ClaimedJob) -> ModelJob | None:
        """The job, if the lease still holds."""
        job = self.jobs.get(claimed.uuid)
        return job if job is not None and job.lease == claimed.lease else None

    def with_key(self, org: str, key: str) -> ModelJob | None:
        return next((job for job in self.jobs.values() if (job.org, job.key) == (org, key)), None)

    def limits_on(self, job: ModelJob) -> list[tuple[str, str, str]]:
        """The limits that hold for a job."""
        applying = (
            (job.org, "org", ""),
            (job.org, "flow", job.queue_key),
            (job.org, "run", "" if job.run is None else job.run.hex),
            (job.org, "endpoint", job.endpoint),
            ("*", "endpoint", job.endpoint),
        )
        return [limit for limit in applying if limit in self.limits]

    def held_under(self, limit: tuple[str, str, str]) -> int:
        """How many permits of a limit are in use."""
        org, scope, name = limit
        of: dict[str, Callable[[ModelJob], bool]] = {
            "org": lambda job: job.org == org,
            "run": lambda job: job.run is not None and job.run.hex == name,
            "flow": lambda job: (job.org, job.queue_key) == (org, name),
            "endpoint": lambda job: job.endpoint == name and org in ("*", job.org),
        }
        return sum(of[scope](job) for job in self.held())

    # What happens

    def submit(self, job: ModelJob) -> None:
        job.state = State.STAGED if job.run_at > self.now else State.QUEUED
        self.jobs[job.uuid] = job

    def claim(self, job: ModelJob, lease: int) -> None:
        timeout = TIMEOUT_UNITS if job.timeout is None else job.timeout
        self._move(job, TransitionEvent.CLAIM, lease=lease, attempt=job.attempts + 1)
        job.dispatched_at = self.now
        job.run_deadline = self.now + timeout

    def start(self, job: ModelJob) -> None:
        if job.state is not State.DISPATCHING:
            return
        assert job.dispatched_at is not None
        assert job.run_deadline is not None
        job.run_deadline += self.now - job.dispatched_at
        job.started_at = self.now
        self._move(job, TransitionEvent.START, lease=job.lease, attempt=job.attempts + 1)

    def complete(self, job: ModelJob, result: bytes) -> None:
        job.result = result
        job.error_code = None
        job.run_units += RAN_UNITS
        if job.started_at is None:
            job.started_at = self.now
        payload_bytes = len(job.payload or b"")
        self._move(job, TransitionEvent.COMPLETE, attempt=job.attempts + 1)
        self._end(job, payload_bytes, attempts=job.attempts + 1)

    def settle(
        self, job: ModelJob, event: TransitionEvent, code: str | None, delay: float
    ) -> State | None:
        """An attempt ends otherwise. What it leads to; None if it changes nothing."""
        if event is TransitionEvent.ACKNOWLEDGE_CANCEL and job.state is not State.CANCEL_REQUESTED:
            return None
        exhausted = event is TransitionEvent.RETRY and job.failures >= job.failures_max
        asked = job.state is State.CANCEL_REQUESTED
        job.failures += event in (TransitionEvent.FAIL, TransitionEvent.RETRY)
        job.interruptions += event is TransitionEvent.RELEASE
        job.unreachables += event is TransitionEvent.UNREACHABLE
        job.run_units += RAN_UNITS
        if asked and event is not TransitionEvent.FAIL:
            job.error_code = "cancelled"
        elif exhausted and job.run is None:
            job.error_code = "max_retries_exhausted"
        elif event is not TransitionEvent.RELEASE:
            job.error_code = code
        effective = TransitionEvent.FAIL if exhausted and not asked else event
        self._end_attempt(job, effective, _OUTCOMES[event], code)
        if job.state.terminal and job.started_at is None:
            job.started_at = self.now
        if job.state is State.RETRYING:
            job.run_at = self.now + delay
        return job.state

    def give_back(self, lease: int) -> list[UUID]:
        """A claim is given back whose answer was lost."""
        unknown = [job for job in self.held() if job.lease == lease]
        for job in unknown:
            asked = job.state is State.CANCEL_REQUESTED
            job.interruptions += 1
            if asked:
                job.error_code = "cancelled"
            payload_bytes = len(job.payload or b"")
            self._move(job, TransitionEvent.RELEASE, attempt=job.attempts)
            if asked:
                self._end(job, payload_bytes)
        return [job.uuid for job in unknown]

    def cancel(self, job: ModelJob) -> None:
        if after(job.state, TransitionEvent.CANCEL) is None:
            return
        if job.state.held:
            self._move(
                job, TransitionEvent.CANCEL, lease=job.lease, attempt=job.attempts + 1, code=None
            )
            return
        job.error_code = "cancelled"
        payload_bytes = len(job.payload or b"")
        self._move(job, TransitionEvent.CANCEL, attempt=job.attempts)
        self._end(job, payload_bytes)

    def cancel_tasks_of(self, run: UUID) -> None:
        """Its waiting tasks end, and those that run are asked to stop."""
        for job in self.live():
            if job.run == run:
                self.cancel(job)

    def stage(self) -> None:
        for job in self.having(State.STAGED, State.RETRYING):
            if job.run_at <= self.now:
                self._move(job, TransitionEvent.DUE, attempt=job.attempts, code=None)

    def rescue(self) -> None:
        self.rescue_jobs()
        self.prune_workers()

    def rescue_jobs(self) -> None:
        holding = Counter(job.boot for job in self.held())
        for job in self.held():
            worker = self.workers.get(job.boot or 0)
            if worker is not None and worker.seen_at + LEASE_UNITS[job.lane] > self.now:
                continue
            alone = holding[job.boot] == 1
            last_seen = self.now if worker is None else worker.seen_at
            assert job.ran_from is not None
            job.run_units += max(0.0, last_seen - job.ran_from)
            asked = job.state is State.CANCEL_REQUESTED
            given_up = job.crashes >= (CRASHES_MAX if alone else CRASHES_TOGETHER_MAX)
            job.crashes += 1
            job.error_code = "cancelled" if asked else "worker_lost"
            event = TransitionEvent.CRASH if job.crashes == 1 else TransitionEvent.CRASH_AGAIN
            self._end_attempt(
                job,
                TransitionEvent.FAIL if given_up and not asked else event,
                "crashed",
                "worker_lost",
            )
            if job.state is State.RETRYING:
                job.run_at = self.now + CRASH_UNITS

    def prune_workers(self) -> None:
        busy = {job.boot for job in self.held()}
        self.workers = {
            boot: worker
            for boot, worker in self.workers.items()
            if boot in busy or worker.seen_at + FORGOTTEN_AFTER_UNITS > self.now
        }

    def expire(self) -> None:
        for job in self.having(State.STAGED, State.QUEUED, State.RETRYING):
            if job.start_deadline is not None and job.start_deadline <= self.now:
                job.error_code = "start_deadline_passed"
                payload_bytes = len(job.payload or b"")
                self._move(job, TransitionEvent.EXPIRE, attempt=job.attempts)
                self._end(job, payload_bytes)
        for job in self.held():
            # What is exactly at its deadline has some slack left.
            assert job.run_deadline is not None
            if job.run_deadline < self.now and self._was_heard_since(job, job.run_deadline):
                self._overrun(job)

    def _was_heard_since(self, job: ModelJob, moment: float) -> bool:
        """Whether its holder is alive, and was when the job's time was up. Otherwise nobody knows
        whether the job still ran by then, and it is the rescuer's to judge."""
        worker = self.workers.get(job.boot or 0)
        return (
            worker is not None
            and worker.seen_at > moment
            and worker.seen_at + LEASE_UNITS[job.lane] > self.now
        )

    def _overrun(self, job: ModelJob) -> None:
        assert job.ran_from is not None
        job.run_units += self.now - job.ran_from
        asked = job.state is State.CANCEL_REQUESTED
        exhausted = job.failures >= job.failures_max
        job.failures += 1
        if asked:
            job.error_code = "cancelled"
        else:
            is_out = exhausted and job.run is None
            job.error_code = "max_retries_exhausted" if is_out else "timed_out"
        event = TransitionEvent.FAIL if exhausted and not asked else TransitionEvent.RETRY
        self._end_attempt(job, event, "failed", "timed_out")
        job.run_at = self.now

    def prune(self) -> None:
        self.jobs = {
            uuid: job
            for uuid, job in self.jobs.items()
            if job.expires_at is None or job.expires_at > self.now
        }

    # What a move brings with it

    def _end_attempt(
        self, job: ModelJob, event: TransitionEvent, outcome: str, code: str | None
    ) -> None:
        payload_bytes = len(job.payload or b"")
        self._move(job, event, attempt=job.attempts)
        if job.run is None:
            number = job.attempts + (outcome not in ("failed", "crashed"))
            job.said["attempt", number, outcome, job.state.value, code] += 1
        if not job.state.terminal:
            job.started_at = None
            return
        if job.state is State.FAILED and job.error_code in _ALERTING:
            job.said["alert", job.error_code, job.attempts] += 1
        self._end(job, payload_bytes)

    def _move(
        self,
        job: ModelJob,
        event: TransitionEvent,
        *,
        attempt: int,
        lease: int | None = None,
        code: str | None = "its own",
    ) -> None:
        target = after(job.state, event)
        assert target is not None, f"{event} cannot happen to a job that is {job.state}"
        previous, job.state, job.lease = job.state, target, lease
        self.edges[previous, target] += 1
        if not target.held:
            job.run_deadline = None
        told_code = job.error_code if code == "its own" else code
        if event in (TransitionEvent.CLAIM, TransitionEvent.START, TransitionEvent.COMPLETE):
            told_code = None
        for listener in self._told_of(job):
            kind = "job" if job.run is None else "task"
            what = (f"{kind}.{target}", target.value, previous.value, attempt, told_code)
            self.told[(job.org, listener, job.uuid, *what)] += 1

    def _told_of(self, job: ModelJob) -> Iterable[UUID]:
        """Of tasks, failures are told, and nothing else."""
        listeners = self.listeners.get(job.org, {}).items()
        if job.run is not None:
            if job.state is State.FAILED:
                yield from job.tells
                yield from (each for each, events in listeners if "task.failed" in events)
            return
        for listener, tells in job.tells.items():
            if tells == 2 or job.state.terminal:
                yield listener
        yield from (each for each, events in listeners if f"job.{job.state}" in events)

    def _end(self, job: ModelJob, payload_bytes: int, attempts: int | None = None) -> None:
        self.ends[job.uuid] += 1
        job.finished_at = self.now
        if job.run is not None:
            keep = inf  # it goes with its batch, and so does what it was handed in with
        elif job.state is State.COMPLETED:
            keep = KEEP_COMPLETED_UNITS if job.keep_completed is None else job.keep_completed
            job.payload = None
        else:
            keep = KEEP_FAILED_UNITS if job.keep_failed is None else job.keep_failed
            job.payload = job.payload if job.keeps_input else None
        job.expires_at = self.now + keep
        flow = job.queue_key if job.run is None else ""
        used = self.used.setdefault((job.org, job.endpoint, flow), Used())
        used.completed += job.state is State.COMPLETED
        used.failed += job.state is State.FAILED
        used.cancelled += job.state is State.CANCELLED
        used.attempts += job.attempts if attempts is None else attempts
        used.payload_bytes += payload_bytes
        used.result_bytes += len(job.result or b"") if job.state is State.COMPLETED else 0
