"""Every history of jobs that can be told: whatever happens to them, in whatever order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from coatcheck.core.org_jobs import OrgJobRepository
from coatcheck.core.queries import jobs, leases, maintenance, reports
from coatcheck.core.queries.leases import FinishedJob, RegistrationGone, Settlement
from coatcheck.db.connection import Connection
from coatcheck.domain.errors import InputNotKept, JobAlreadyEnded, JobNotEnded, JobNotFound
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import ClaimedJob, ConcurrencyLimit
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import CRASHES_MAX
from coatcheck.domain.states import TERMINAL, State, TransitionEvent
from coatcheck.domain.webhooks import target_id
from coatcheck.encoding import encode
from coatcheck.maintenance.jobs import Expirer, Rescuer, Stager
from coatcheck.maintenance.loop import Loop
from coatcheck.maintenance.retention import Pruner
from coatcheck.maintenance.usage import UsageRollup
from tests.databases import Databases
from tests.db.claimer import KEEP_COMPLETED_SECONDS, KEEP_FAILED_SECONDS, Claimer
from tests.properties.claim_rules import check_free_claim, check_limited_claim
from tests.properties.job_comparison import check
from tests.properties.job_model import JobModel, ModelJob, ModelWorker
from tests.properties.machine import Machine, at, pick, try_out
from tests.properties.meeting import meet
from tests.properties.stepped_deployment import CRASH_BACKOFF, LEASE_UNITS, UNIT_SECONDS

EXAMPLES: Final = 50
TABLES: Final = (
    "jobs",
    "queue",
    "postponed",
    "start_deadlines",
    "job_expiries",
    "claims",
    "workers",
    "concurrency_limits",
    "job_events",
    "job_webhooks",
    "webhook_deliveries",
    "webhook_targets",
    "usage_deltas",
    "usage",
    "usage_hours",
)
ORGS: Final = ("a", "b")
ENDPOINTS: Final = ("demo.post__one", "demo.post__two")
END_URL: Final = "https://hooks.example/end"
STATES_URL: Final = "https://hooks.example/states"
WANTED: Final = ("job.completed", "job.failed", "job.retrying", "job.cancel_requested")
RAN_SECONDS: Final = 0.5
LIMITS: Final = (
    ("a", "org", ""),
    ("b", "flow", "f"),
    ("a", "endpoint", ENDPOINTS[0]),
    ("*", "endpoint", ENDPOINTS[1]),
)


@dataclass(frozen=True)
class Order:
    """What a caller hands in. Times are in units."""

    org: str
    endpoint: str
    lane: Lane
    queue_key: str = ""
    key: str | None = None
    body: int = 0
    delay: int = 0
    start_within: int | None = None
    timeout: float = 2.5
    retries: int = 1
    keep: int | None = None
    keep_input: bool = True
    tells_end: bool = False
    tells_states: bool = False


orders = st.builds(
    Order,
    org=st.sampled_from(ORGS),
    endpoint=st.sampled_from(ENDPOINTS),
    lane=st.sampled_from(list(Lane)),
    queue_key=st.sampled_from(("", "f")),
    key=st.sampled_from((None, None, "k", "l")),
    body=st.integers(0, 1),
    delay=st.sampled_from((0, 0, 0, 1, 3)),
    start_within=st.sampled_from((None, None, None, 1, 4)),
    timeout=st.sampled_from((2.5, 6.5, 0.5)),
    retries=st.integers(0, 2),
    keep=st.sampled_from((None, 1, 3)),
    keep_input=st.booleans(),
    tells_end=st.booleans(),
    tells_states=st.booleans(),
)
workers = st.integers(0, 2)
rooms = st.integers(1, 6)


class EngineMachine(Machine):
    """Callers, three workers and upkeep, each a step at a time, against the oracle."""

    def __init__(self) -> None:
        super().__init__()
        self.model = JobModel()
        self.workers: list[Claimer] = []
        self.claimed: dict[UUID, ClaimedJob] = {}
        """What workers know that they hold; the database may know better."""
        self.stale: list[ClaimedJob] = []
        """Leases that have ended, in the hands of somebody who does not know."""
        self.lost_claims: list[int] = []
        self.bodies: dict[UUID, tuple[object, object]] = {}
        """What a key was first used for, by the job that holds it."""
        self.numbers = itertools.count(1)

    @initialize(
        at_first=st.lists(orders, min_size=3, max_size=8),
        under=st.sampled_from((None, *LIMITS)),
        held_max=st.integers(1, 2),
    )
    def begin(
        self, at_first: list[Order], under: tuple[str, str, str] | None, held_max: int
    ) -> None:
        self.deployment.clear()
        self.deployment.do(self._begin())
        for order in at_first:
            self._submit(order)
        if under is not None:
            self.limit(under, held_max)
        self.claim(0, 3, 3, 3)

    async def _begin(self) -> None:
        for _ in range(3):
            await self._boot()
        listener = await self.deployment.engine.webhooks.create_endpoint(
            "b", "https://hooks.example/endpoint", WANTED
        )
        self.model.listeners["b"] = {listener.uuid: frozenset(WANTED)}

    async def _boot(self) -> Claimer:
        worker = await self.deployment.new_worker(ENDPOINTS)
        self.model.workers[worker.boot] = ModelWorker(worker.boot, self.model.now)
        self.workers.append(worker)
        return worker

    # Callers

    @rule(order=orders)
    def submit(self, order: Order) -> None:
        self._submit(order)

    def _submit(self, order: Order) -> None:
        org, payload = order.org, encode({"body": order.body})
        known = None if order.key is None else self.model.with_key(org, order.key)
        in_units = {
            "delay": order.delay or None,
            "timeout": order.timeout,
            "keep_completed": order.keep,
            "keep_failed": order.keep,
        }
        ticket = self.deployment.do(
            self.deployment.engine.submit(
                order.endpoint,
                payload,
                org=org,
                lane=order.lane,
                queue_key=order.queue_key,
                idempotency_key=order.key,
                retries=order.retries,
                keep_input=order.keep_input,
                start_deadline=None
                if order.start_within is None
                else datetime.now(UTC) + timedelta(seconds=order.start_within * UNIT_SECONDS),
                webhook_url=END_URL if order.tells_end else None,
                state_webhook_url=STATES_URL if order.tells_states else None,
                **{
                    name: value * UNIT_SECONDS
                    for name, value in in_units.items()
                    if value is not None
                },
            )
        )
        if known is not None:
            self.followed("submit", "known key")
            assert (ticket.uuid, ticket.created) == (known.uuid, False)
            assert ticket.state is known.state
            assert ticket.mismatch == (self.bodies[known.uuid] != (order.endpoint, payload))
            return
        assert ticket.created
        now = self.model.now
        self.model.submit(
            ModelJob(
                org,
                ticket.uuid,
                order.lane,
                order.endpoint,
                order.queue_key,
                payload,
                order.retries,
                now,
                now + order.delay,
                key=order.key,
                start_deadline=None if order.start_within is None else now + order.start_within,
                timeout=order.timeout,
                keep_completed=order.keep,
                keep_failed=order.keep,
                keeps_input=order.keep_input,
                tells={
                    target_id(org, url): tells
                    for url, tells, is_told in (
                        (END_URL, 1, order.tells_end),
                        (STATES_URL, 2, order.tells_states),
                    )
                    if is_told
                },
            )
        )
        self.bodies[ticket.uuid] = (order.endpoint, payload)
        self.followed("submit", ticket.state)
        assert ticket.state is self.model.jobs[ticket.uuid].state

    @precondition(lambda self: self.model.jobs)
    @rule(at=at)
    def cancel(self, at: int) -> None:
        job = pick(self.model.live() + self.model.having(*TERMINAL)[-1:], at)
        before = job.state
        self.followed("cancel", before)
        with pytest.raises(JobNotFound):
            self.deployment.do(self.deployment.engine.cancel(text_of(job), org="another"))
        if before.terminal:
            with pytest.raises(JobAlreadyEnded):
                self.deployment.do(self.deployment.engine.cancel(text_of(job), org=job.org))
            return
        view = self.deployment.do(self.deployment.engine.cancel(text_of(job), org=job.org))
        self.model.cancel(job)
        assert view.state is job.state

    @precondition(lambda self: self.model.jobs)
    @rule(at=at, key=st.sampled_from((None, "k", "r")))
    def retry(self, at: int, key: str | None) -> None:
        old = pick(self.model.having(*TERMINAL) + self.model.live()[-1:], at)
        known = None if key is None else self.model.with_key(old.org, key)
        console = self.deployment.engine.extension(OrgJobRepository)
        seen = self.deployment.do(console.get(old.org, old.uuid))
        asking = console.retry(seen, idempotency_key=key, request_id=None)
        if known is not None:
            self.followed("retry", "known key")
            ticket = self.deployment.do(asking)
            assert (ticket.uuid, ticket.created) == (known.uuid, False)
            assert ticket.mismatch == (self.bodies[known.uuid] != ("retry", old.uuid))
        elif not old.state.terminal:
            self.followed("retry", "goes on")
            with pytest.raises(JobNotEnded):
                self.deployment.do(asking)
        elif old.payload is None:
            self.followed("retry", "input gone")
            with pytest.raises(InputNotKept):
                self.deployment.do(asking)
        else:
            self.followed("retry", old.state)
            ticket = self.deployment.do(asking)
            assert ticket.created
            self.bodies[ticket.uuid] = ("retry", old.uuid)
            self.model.submit(again(old, ticket.uuid, key, self.model.now))

    # Workers

    @rule(worker=workers, urgent=rooms, standard=rooms, bulk=rooms)
    def claim(self, worker: int, urgent: int, standard: int, bulk: int) -> None:
        """As a worker does it: what is under no limit, and then what is, if there is any limit."""
        room = {Lane.URGENT: urgent, Lane.STANDARD: standard, Lane.BULK: bulk}
        free = self.deployment.do(self.workers[-1 - worker].claim(room))
        check_free_claim(self.model, free, room, ENDPOINTS)
        self._took(free)
        limited = []
        if self.model.limits:
            limited = self.deployment.do(self.workers[-1 - worker].claim_limited(room))
            check_limited_claim(self.model, limited, room, ENDPOINTS)
            self._took(limited)
        self.followed("claim", f"{'some' if free else 'none'} free")
        self.followed("claim", f"{'some' if limited else 'none'} limited")

    @rule(worker=workers, room=rooms, at=at, gives_back=st.booleans())
    def lose_the_answer(self, worker: int, room: int, at: int, gives_back: bool) -> None:
        """A claim whose answer never came: nobody knows what it took. It is given back, at once or
        some time later."""
        each = dict.fromkeys(Lane, room)
        claimed = self.deployment.do(self.workers[-1 - worker].claim(each))
        check_free_claim(self.model, claimed, each, ENDPOINTS)
        for job in claimed:
            self.model.claim(self.model.jobs[job.uuid], job.lease)
        self.lost_claims += {job.lease for job in claimed}
        if gives_back and self.lost_claims:
            lease = pick(self.lost_claims, at)
            given_back = self.deployment.do(
                leases.release_claim(self.deployment.line, lease, KEEP_FAILED_SECONDS)
            )
            assert set(given_back) == set(self.model.give_back(lease))
        self.followed("lose_the_answer", "given back" if gives_back else "not yet")

    def _took(self, claimed: Sequence[ClaimedJob]) -> None:
        for job in claimed:
            modelled = self.model.jobs[job.uuid]
            assert job.payload == modelled.payload
            self.model.claim(modelled, job.lease)
            assert job.attempt == modelled.attempts + 1
            self._let_go(job.uuid)
            self.claimed[job.uuid] = job

    def _let_go(self, uuid: UUID) -> None:
        """Whoever had the job does not have it any more, and may not know."""
        if uuid in self.claimed:
            self.stale.append(self.claimed.pop(uuid))

    def _sort_out_what_is_stale(self) -> None:
        for uuid, claimed in list(self.claimed.items()):
            if self.model.holder_of(claimed) is None:
                self._let_go(uuid)

    def _late(self) -> list[ClaimedJob]:
        """Those who lost a lease: if there are any, those whose job somebody else holds by now."""
        held = {job.uuid for job in self.model.held()}
        return [claimed for claimed in self.stale if claimed.uuid in held] or self.stale

    @precondition(lambda self: self.claimed)
    @rule(at=at, together=st.integers(1, 3))
    def start(self, at: int, together: int) -> None:
        jobs = self._some_of(list(self.claimed.values()), at, together) + self._late()[:1]
        held = self.deployment.do(
            leases.mark_started(self.deployment.line, [(job, RAN_SECONDS) for job in jobs])
        )
        expected = [self.model.holder_of(job) for job in jobs]
        assert held == {job.uuid for job in expected if job is not None}
        for job in expected:
            if job is not None:
                self.model.start(job)
        self.followed("start")

    @precondition(lambda self: self.claimed)
    @rule(
        at=at,
        together=st.integers(1, 3),
        worker=workers,
        room=st.integers(0, 2),
        with_stale=st.booleans(),
    )
    def complete(self, at: int, together: int, worker: int, room: int, with_stale: bool) -> None:
        """Hand in results and take out work, in one exchange, as workers do."""
        done = self._some_of(list(self.claimed.values()), at, together)
        if with_stale:
            done += self._late()[:2]
        result = encode({"number": next(self.numbers)})
        rooms = dict.fromkeys(Lane, room)
        hand_in = [FinishedJob(job, result, RAN_SECONDS) for job in done]
        claimed, accepted = self.deployment.do(
            leases.exchange(
                self.deployment.line,
                self.workers[-1 - worker].order(rooms),
                hand_in,
                KEEP_COMPLETED_SECONDS,
            )
        )
        ended = [job for job in map(self.model.holder_of, done) if job is not None]
        assert accepted == {job.uuid for job in ended}
        check_free_claim(self.model, claimed, rooms, ENDPOINTS)
        for job in ended:
            self.model.complete(job, result)
        self._took(claimed)
        self.followed("complete", "refused some" if len(accepted) < len(done) else "accepted all")

    @precondition(lambda self: self.claimed)
    @rule(
        at=at,
        together=st.integers(1, 2),
        event=st.sampled_from(
            (
                TransitionEvent.FAIL,
                TransitionEvent.RETRY,
                TransitionEvent.RETRY,
                TransitionEvent.UNREACHABLE,
                TransitionEvent.POSTPONE,
                TransitionEvent.RELEASE,
                TransitionEvent.ACKNOWLEDGE_CANCEL,
            )
        ),
        delay=st.sampled_from((0, 1, 3)),
    )
    def settle(self, at: int, together: int, event: TransitionEvent, delay: int) -> None:
        jobs = self._some_of(list(self.claimed.values()), at, together)
        self._settle(jobs, event, delay)
        self.followed("settle", event)

    def _settle(self, jobs: Sequence[ClaimedJob], event: TransitionEvent, delay: int) -> None:
        code = (
            None
            if event in (TransitionEvent.RELEASE, TransitionEvent.ACKNOWLEDGE_CANCEL)
            else "broke"
        )
        settled = self.deployment.do(
            leases.settle(
                self.deployment.line,
                [
                    Settlement(job, event, code, code, delay * UNIT_SECONDS, RAN_SECONDS)
                    for job in jobs
                ],
                KEEP_FAILED_SECONDS,
            )
        )
        expected = {}
        for job in jobs:
            holder = self.model.holder_of(job)
            state = None if holder is None else self.model.settle(holder, event, code, delay)
            if state is not None:
                expected[job.uuid] = state
        assert {uuid: each.state for uuid, each in settled.items()} == expected

    @precondition(lambda self: self.claimed)
    @rule(at=at, fraction=st.sampled_from((0.25, 0.5)), note=st.sampled_from((None, "half way")))
    def report(self, at: int, fraction: float, note: str | None) -> None:
        job = pick(list(self.claimed.values()), at)
        self._report(job, fraction, note)
        self.followed("report")

    def _report(self, job: ClaimedJob, fraction: float, note: str | None) -> None:
        number = next(self.numbers)
        self.deployment.do(reports.set_progress(self.deployment.line, [(job, fraction, note)]))
        self.deployment.do(
            reports.add_events(self.deployment.line, [(job, "log", encode(number))], number)
        )
        holder = self.model.holder_of(job)
        if holder is not None:
            holder.progress = fraction
            holder.progress_note = note or holder.progress_note
            holder.said["log", number] += 1

    @precondition(lambda self: self.stale)
    @rule(
        at=at,
        how=st.sampled_from(
            (
                "complete",
                "start",
                TransitionEvent.FAIL,
                TransitionEvent.RETRY,
                TransitionEvent.RELEASE,
            )
        ),
    )
    def come_late(self, at: int, how: str | TransitionEvent) -> None:
        """Whoever lost its lease writes all the same: nothing of it may show."""
        job = pick(self._late(), at)
        assert self.model.holder_of(job) is None
        self._report(job, 0.99, "too late")
        if how == "complete":
            worker = self.workers[-1]
            assert self.deployment.do(worker.complete(job, result=b'"too late"')) == 0
        elif how == "start":
            assert not self.deployment.do(
                leases.mark_started(self.deployment.line, [(job, RAN_SECONDS)])
            )
        else:
            self._settle([job], TransitionEvent(how), 0)
        self.followed("come_late", how)

    @precondition(lambda self: self.claimed)
    @rule(
        at=at,
        first=st.sampled_from(("rescue", "complete", "fail", "cancel")),
        second=st.sampled_from(("complete", "retry", "cancel")),
    )
    def run_into_each_other(self, at: int, first: str, second: str) -> None:
        """Two want to change a job at the same moment: it is as if one came after the other."""
        claimed = pick(list(self.claimed.values()), at)
        if first == "rescue":
            self._silence(claimed.lease >> 40)
        answers = self.deployment.do(
            meet(
                self.deployment,
                lambda line: self._change(line, claimed, first),
                lambda line: self._change(line, claimed, second),
            )
        )
        expected = [self._modelled_change(claimed, how) for how in (first, second)]
        assert list(answers) == expected
        self.followed("run_into_each_other", f"{first}, {second}")

    async def _change(self, line: Connection, claimed: ClaimedJob, how: str) -> State | None:
        """Do something to a job. Its state, if it was changed."""
        match how:
            case "rescue":
                rescued = await maintenance.rescue(
                    line,
                    crashes_max=CRASHES_MAX,
                    keep_failed_seconds=KEEP_FAILED_SECONDS,
                    rows_max=100,
                    backoff=CRASH_BACKOFF,
                )
                return next((job.state for job in rescued if job.uuid == claimed.uuid), None)
            case "complete":
                done = FinishedJob(claimed, b'"met"', RAN_SECONDS)
                order = self.workers[-1].order(0)
                _, accepted = await leases.exchange(line, order, [done], KEEP_COMPLETED_SECONDS)
                return State.COMPLETED if accepted else None
            case "cancel":
                answer = await jobs.cancel(line, claimed.org, claimed.uuid, KEEP_FAILED_SECONDS)
                assert answer is not None
                return None if answer.before is answer.after else answer.after
            case _:
                ended = Settlement(
                    claimed, TransitionEvent(how), "broke", "broke", 0.0, RAN_SECONDS
                )
                settled = await leases.settle(line, [ended], KEEP_FAILED_SECONDS)
                return settled[claimed.uuid].state if settled else None

    def _modelled_change(self, claimed: ClaimedJob, how: str) -> State | None:
        job = self.model.jobs[claimed.uuid]
        holder, before = self.model.holder_of(claimed), job.state
        match how:
            case "rescue":
                self.model.rescue_jobs()
            case "cancel":
                self.model.cancel(job)
            case "complete" if holder is not None:
                self.model.complete(holder, b'"met"')
            case _ if holder is not None:
                self.model.settle(holder, TransitionEvent(how), "broke", 0.0)
        return None if job.state is before else job.state

    @rule(worker=workers, happens=st.sampled_from(("heartbeat", "heartbeat", "boot", "end")))
    def live_and_die(self, worker: int, happens: str) -> None:
        match happens:
            case "heartbeat":
                self._heartbeat(self.workers[-1 - worker].boot)
            case "boot":
                # The oldest of three is started again; what it held is still the old boot's.
                self.deployment.do(self._boot())
            case "end":
                # In good order or not: whatever it still holds is nobody's.
                boot = self.workers[-1 - worker].boot
                self.deployment.do(leases.deregister(self.deployment.line, boot))
                self.model.workers.pop(boot, None)
        self.followed("live_and_die", happens)

    @precondition(lambda self: self.claimed)
    @rule(at=at, worker=workers)
    def fall_silent(self, at: int, worker: int) -> None:
        """A worker that holds something is not heard of for long; others take over."""
        boot = pick(list(self.claimed.values()), at).lease >> 40
        self._silence(boot)
        self.tick(Rescuer)
        self._sort_out_what_is_stale()
        self.claim(worker, 3, 3, 3)
        self.followed("fall_silent")

    def _silence(self, boot: int) -> None:
        """A worker was last heard of longer ago than any lease lasts."""
        known = self.model.workers.get(boot)
        if known is None:
            return
        known.seen_at -= max(LEASE_UNITS.values())
        self.deployment.do(
            self.deployment.connection.execute(
                "UPDATE workers SET last_seen_at = last_seen_at - $2 * interval '1 second' "
                "WHERE boot = $1",
                boot,
                max(LEASE_UNITS.values()) * UNIT_SECONDS,
            )
        )

    def _heartbeat(self, boot: int) -> None:
        known = self.model.workers.get(boot)
        if known is None:
            with pytest.raises(RegistrationGone):
                self.deployment.do(leases.heartbeat(self.deployment.line, boot))
            return
        asked = self.deployment.do(leases.heartbeat(self.deployment.line, boot))
        known.seen_at = self.model.now
        assert set(asked) == {
            job.uuid for job in self.model.having(State.CANCEL_REQUESTED) if job.boot == boot
        }

    def _some_of(self, jobs: list[ClaimedJob], at: int, most: int) -> list[ClaimedJob]:
        start = at % len(jobs)
        return jobs[start : start + most]

    # Time, and upkeep

    @rule(units=st.sampled_from((1, 1, 1, 1, 2, 2, 2, 3, 5, 90)))
    def pass_time(self, units: int) -> None:
        self.deployment.do(self.deployment.pass_time(units))
        self.model.now += units
        self.followed("pass_time")

    @rule(loop=st.sampled_from((Rescuer, Stager, Expirer, Pruner, UsageRollup)))
    def tick(self, loop: type[Loop]) -> None:
        self.deployment.tick(loop)
        if loop is Rescuer:
            self.model.rescue()
        elif loop is Stager:
            self.model.stage()
        elif loop is Expirer:
            self.model.expire()
        elif loop is Pruner:
            self.model.prune()
        self.followed("tick", loop.name)

    @rule(limit=st.sampled_from(LIMITS), held_max=st.sampled_from((None, None, 0, 1, 2)))
    def limit(self, limit: tuple[str, str, str], held_max: int | None) -> None:
        if held_max is None:
            self._clear_limit(limit)
        else:
            self.deployment.do(self.deployment.engine.set_limit(ConcurrencyLimit(*limit, held_max)))
            self.model.limits[limit] = held_max
        self.followed("limit", held_max)

    def _clear_limit(self, limit: tuple[str, str, str]) -> None:
        cleared = self.deployment.do(self.deployment.engine.clear_limit(*limit))
        assert cleared == (self.model.limits.pop(limit, None) is not None)

    # What holds after every step

    @invariant()
    def the_database_is_as_the_oracle_says(self) -> None:
        self._sort_out_what_is_stale()
        self.deployment.do(check(self.deployment, self.model))

    def teardown(self) -> None:
        """However it stands, everything ends by itself: nothing is stuck (invariant E)."""
        for limit in list(self.model.limits):
            self._clear_limit(limit)
        for _ in range(CRASHES_MAX + 2):
            if not self.model.live():
                break
            self.pass_time(max(LEASE_UNITS.values()))
            for loop in (Rescuer, Stager):
                self.tick(loop)
            self.deployment.do(self._boot())
            self._sort_out_what_is_stale()
            self.claim(0, 100, 100, 100)
            if self.claimed:
                self.complete(0, len(self.claimed), 0, 0, with_stale=True)
            self.the_database_is_as_the_oracle_says()
        assert not self.model.live(), "some jobs never end"
        self.pass_time(700)
        self.tick(Pruner)
        self.the_database_is_as_the_oracle_says()
        assert not self.model.jobs


def text_of(job: ModelJob) -> str:
    return to_text(job.uuid)


def again(old: ModelJob, uuid: UUID, key: str | None, now: float) -> ModelJob:
    """What a retry of a job is to be: all that the old one was handed in with, due now."""
    return ModelJob(
        old.org,
        uuid,
        old.lane,
        old.endpoint,
        old.queue_key,
        old.payload,
        old.failures_max,
        now,
        now,
        key=key,
        start_deadline=None
        if old.start_deadline is None
        else now + old.start_deadline - old.created_at,
        timeout=old.timeout,
        keep_completed=old.keep_completed,
        keep_failed=old.keep_failed,
        keeps_input=old.keeps_input,
        tells=old.tells,
        retry_of=old.uuid,
    )


def test_no_history_of_jobs_leaves_the_oracle(databases: Databases, tmp_path: Path) -> None:
    try_out(EngineMachine, databases, tmp_path, TABLES, examples=EXAMPLES)
