"""Every history of batches that can be told: counters, runs and their ends, whatever happens."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from coatcheck.core.queries import leases
from coatcheck.core.queries.leases import FinishedJob, Settlement
from coatcheck.domain.errors import (
    FailJob,
    JobAlreadyEnded,
    JobNotFound,
    NotFound,
    TargetUnreachable,
)
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import TERMINAL, State, TransitionEvent
from coatcheck.domain.webhooks import target_id
from coatcheck.maintenance.jobs import Rescuer, Stager
from coatcheck.maintenance.loop import Loop
from coatcheck.maintenance.retention import Pruner
from coatcheck.maintenance.usage import UsageRollup
from coatcheck.products.batches import maintenance, repository
from coatcheck.products.batches.ingest import Ingester, IngestRequest
from coatcheck.products.batches.maintenance import (
    BatchCanceller,
    BatchRemover,
    IngestReconciler,
    RunCompleter,
)
from coatcheck.products.batches.model import (
    INGEST_ENDPOINT,
    BatchAlreadyEnded,
    BatchNotOpen,
    BatchStillRuns,
    NewBatch,
    NewPart,
    NewTask,
    NothingToRerun,
    RunFilter,
    TaskStatus,
    list_key,
)
from coatcheck.products.batches.repository import BatchRepository
from tests.databases import Databases
from tests.db.claimer import KEEP_COMPLETED_SECONDS, KEEP_FAILED_SECONDS, Claimer
from tests.properties.batch_comparison import check
from tests.properties.batch_model import BatchModel, ModelBatch, ModelPart, ModelRun
from tests.properties.claim_rules import check_free_claim, check_limited_claim
from tests.properties.job_model import ModelWorker
from tests.properties.machine import Machine, at, pick, try_out
from tests.properties.stepped_deployment import LEASE_UNITS, UNIT_SECONDS

EXAMPLES: Final = 30
TABLES: Final = (
    "jobs",
    "queue",
    "postponed",
    "start_deadlines",
    "job_expiries",
    "claims",
    "workers",
    "job_events",
    "webhook_deliveries",
    "webhook_targets",
    "usage_deltas",
    "usage",
    "usage_hours",
    "batches",
    "runs",
    "batch_parts",
    "batch_positions",
    "run_limits",
    "run_tokens",
)
ORG: Final = "a"
ENDPOINT: Final = "demo.post__work"
URL: Final = "https://hooks.example/batch"
EVENTS: Final = ("completed", "task.failed", "tasks.succeeded")
WANTED: Final = ("batch.completed", "task.failed", "job.completed", "job.failed")
KEEP_UNITS: Final = 20
BATCHES_MAX: Final = 4
"""Fewer than a tick of the remover looks at."""
RAN_SECONDS: Final = 0.5
LOST_PARTS: Final = """
    SELECT p.id, j.state::text
    FROM batch_parts AS p
    LEFT JOIN jobs AS j ON j.org_id = p.org_id AND j.id = p.ingest_job
    WHERE p.state = 'pending' AND (j.id IS NULL OR j.state IN ('completed', 'failed', 'cancelled'))
"""

counts = st.integers(1, 4)
selections = st.sampled_from(
    (
        (),
        (TaskStatus.FAILED,),
        (TaskStatus.SUCCEEDED,),
        (TaskStatus.FAILED, TaskStatus.CANCELLED),
    )
)


class BatchMachine(Machine):
    """Callers, workers that run tasks, one that takes lists in, and upkeep, against the oracle."""

    ids: Iterator[int] = itertools.count(1)

    def __init__(self) -> None:
        super().__init__()
        self.model = BatchModel()
        self.claimed: dict[UUID, ClaimedJob] = {}
        self.stale: list[ClaimedJob] = []
        self.lists: dict[UUID, str] = {}
        """Where the list of each part is to be, and of which parts it is there."""
        self.staged: set[UUID] = set()
        self.made = 0
        self.numbers = itertools.count(1)

    @initialize(
        tasks=counts,
        open_tasks=counts,
        with_list=st.booleans(),
        fails=st.sampled_from((None, 1, 2)),
    )
    def begin(self, tasks: int, open_tasks: int, with_list: bool, fails: int | None) -> None:
        type(self).ids = itertools.count(1)
        self.deployment.clear()
        self.deployment.do(self._begin())
        self.create("closed", tasks, None, None, 0, True)
        self.create("open", open_tasks, None, None, 1, True)
        if with_list:
            self.add(0, "list", open_tasks, None)
            self.take_in("well")
        if fails is None:
            self.claim(2)
        else:
            self.work_off(fails)

    async def _begin(self) -> None:
        await self._boot()
        self.ingester = Ingester(
            self.deployment.line,
            self.deployment.engine.blobs,
            self.deployment.engine.database.notifier,
        )
        listener = await self.deployment.engine.webhooks.create_endpoint(
            ORG, "https://hooks.example/endpoint", WANTED
        )
        self.model.listeners[ORG] = {listener.uuid: frozenset(WANTED)}

    async def _boot(self) -> None:
        self.worker = await self._new_worker(ENDPOINT)
        self.taker = await self._new_worker(INGEST_ENDPOINT)

    async def _new_worker(self, endpoint: str) -> Claimer:
        worker = await self.deployment.new_worker([endpoint])
        self.model.workers[worker.boot] = ModelWorker(worker.boot, self.model.now)
        return worker

    def _id(self) -> UUID:
        return UUID(int=next(self.ids) << 64)

    def _payloads(self, tasks: int) -> list[bytes]:
        return [b'{"n":%d}' % next(self.numbers) for _ in range(tasks)]

    # Callers

    @precondition(lambda self: self.made < BATCHES_MAX)
    @rule(
        kind=st.sampled_from(("closed", "open", "open and empty", "list", "list that is gone")),
        tasks=counts,
        key=st.sampled_from((None, "k")),
        concurrency=st.sampled_from((None, None, 1, 2)),
        retries=st.integers(0, 1),
        told=st.booleans(),
    )
    def create(
        self,
        kind: str,
        tasks: int,
        key: str | None,
        concurrency: int | None,
        retries: int,
        told: bool,
    ) -> None:
        new = NewBatch(
            org=ORG,
            uuid=self._id(),
            run=self._id(),
            owner="user:ann",
            service="demo",
            service_endpoint="/work",
            endpoint=ENDPOINT,
            usage_queue_key="",
            lane=Lane.STANDARD.value,
            failures_max=retries,
            is_open=kind.startswith("open"),
            payload_prefix=b"",
            payload_suffix=b"",
            concurrency=concurrency,
            rate_per_second=None,
            rate_key=None,
            rate_key_per_second=None,
            webhook_url=URL if told else None,
            webhook_events=EVENTS if told else (),
            metadata=None,
            keep_seconds=int(KEEP_UNITS * UNIT_SECONDS),
            idempotency_key=key,
            fingerprint=kind.encode(),
            request_id=None,
        )
        payloads = self._payloads(tasks)
        part, modelled = self._part(new.uuid, kind, payloads)
        doing = self.deployment.engine.extension(BatchRepository)
        if kind in ("closed", "open"):
            assert part is not None
            created = self.deployment.do(
                doing.create(new, part, [NewTask(payload) for payload in payloads])
            )
        else:
            created = self.deployment.do(doing.create(new, part))
        self.followed("create", kind)
        known = next((b for b in self.model.shown() if key is not None and b.key == key), None)
        if known is not None:
            assert (created.uuid, created.created) == (known.uuid, False)
            return
        assert created.created
        self.made += 1
        batch = ModelBatch(
            new.uuid,
            ORG,
            ENDPOINT,
            Lane.STANDARD,
            retries,
            new.is_open,
            KEEP_UNITS,
            key=key,
            concurrency=concurrency,
            target=target_id(ORG, URL) if told else None,
            events=EVENTS if told else (),
        )
        self.model.create(batch, new.run, [modelled] if modelled is not None else [])
        if kind in ("closed", "open"):
            self.model.write(batch.current, payloads)
            self.model.latch(batch.current)

    def _batches(self) -> list[ModelBatch]:
        """Those that can be seen, and one that was deleted."""
        deleted = [batch for batch in self.model.batches.values() if batch.deleted]
        return self.model.shown() + deleted[-1:]

    def _part(
        self, batch: UUID, kind: str, payloads: Sequence[bytes], key: str | None = None
    ) -> tuple[NewPart | None, ModelPart | None]:
        """A part about to be handed in, and what is to become of it."""
        if kind == "open and empty":
            return None, None
        part, now = self._id(), self.model.now
        if not kind.startswith("list"):
            given = NewPart(part, "inline", idempotency_key=key, fingerprint=b"inline")
            return given, ModelPart(part, "done", now, now, key=key)
        self.lists[part] = list_key(UUID(int=7), batch, part)
        given = NewPart(
            part,
            "pieces",
            source_key=self.lists[part],
            source_pieces=1,
            source_bytes=len(_lines(payloads)),
            idempotency_key=key,
            fingerprint=b"list",
        )
        modelled = ModelPart(part, "pending", now, now, key=key, list_of=payloads)
        if kind == "list":
            self._stage(modelled)
        return given, modelled

    def _stage(self, part: ModelPart) -> None:
        """Put a list where it is looked for."""
        if part.rerun_of is None:
            piece = f"{self.lists[part.uuid]}/00000"
            self.deployment.do(self.deployment.engine.blobs.put_whole(piece, _lines(part.list_of)))
            self.staged.add(part.uuid)

    @precondition(lambda self: self.model.batches)
    @rule(
        at=at,
        kind=st.sampled_from(("inline", "inline", "list")),
        tasks=counts,
        key=st.sampled_from((None, "p")),
    )
    def add(self, at: int, kind: str, tasks: int, key: str | None) -> None:
        # Those that are open first: most are not.
        batch = pick(sorted(self._batches(), key=lambda batch: batch.current.closed), at)
        payloads = self._payloads(tasks)
        part, modelled = self._part(batch.uuid, kind, payloads, key)
        assert part is not None
        assert modelled is not None
        adding = self.deployment.engine.extension(BatchRepository).add(
            ORG,
            batch.uuid,
            part,
            [NewTask(payload) for payload in payloads] if kind == "inline" else None,
        )
        known = next(
            (
                each
                for run in batch.runs
                for each in run.parts
                if key is not None and each.key == key
            ),
            None,
        )
        if batch.deleted:
            self.followed("add", "gone")
            with pytest.raises(JobNotFound):
                self.deployment.do(adding)
        elif known is not None:
            self.followed("add", "known key")
            assert self.deployment.do(adding).uuid == known.uuid
        elif batch.current.closed:
            self.followed("add", "closed")
            with pytest.raises(BatchNotOpen):
                self.deployment.do(adding)
        else:
            self.followed("add", kind)
            assert self.deployment.do(adding).created
            batch.current.parts.append(modelled)
            if kind == "inline":
                self.model.write(batch.current, payloads)

    @precondition(lambda self: self.model.batches)
    @rule(at=at)
    def close(self, at: int) -> None:
        batch = pick(self._batches(), at)
        closing = self.deployment.engine.extension(BatchRepository).close(
            to_text(batch.uuid), org=ORG
        )
        self.followed("close", batch.current.status)
        if batch.deleted:
            with pytest.raises(JobNotFound):
                self.deployment.do(closing)
            return
        self.deployment.do(closing)
        batch.current.closed = True
        self.model.latch(batch.current)

    @precondition(lambda self: self.model.batches)
    @rule(at=at)
    def cancel(self, at: int) -> None:
        batch = pick(self._batches(), at)
        cancelling = self.deployment.engine.extension(BatchRepository).cancel(
            to_text(batch.uuid), org=ORG
        )
        self.followed("cancel", batch.current.status)
        if batch.deleted:
            with pytest.raises(JobNotFound):
                self.deployment.do(cancelling)
        elif batch.current.completed_at is not None:
            with pytest.raises(BatchAlreadyEnded):
                self.deployment.do(cancelling)
        else:
            self.deployment.do(cancelling)
            self.model.stop(batch.current)

    @precondition(lambda self: len(self.model.shown()) > 1 or len(self.model.batches) > 2)
    @rule(at=at)
    def delete(self, at: int) -> None:
        batch = pick(self._batches(), at)
        deleting = self.deployment.engine.extension(BatchRepository).delete(
            to_text(batch.uuid), org=ORG
        )
        self.followed("delete", batch.current.status)
        if batch.deleted:
            with pytest.raises(JobNotFound):
                self.deployment.do(deleting)
            return
        self.deployment.do(deleting)
        self.model.delete(batch)

    @precondition(lambda self: self.model.batches)
    @rule(
        at=at,
        selection=selections,
        of=st.sampled_from(("unnamed", "unnamed", "all", "first", "current")),
    )
    def rerun(self, at: int, selection: tuple[TaskStatus, ...], of: str) -> None:
        # Those that can be run again first: most cannot.
        batches = sorted(self.model.batches.values(), key=lambda b: not self.model.can_rerun(b))
        batch = pick(batches, at)
        run = batch.current
        parent = batch.runs[0] if of == "first" else run
        of_all = of == "all" or (of == "unnamed" and not selection)
        named = of in ("first", "current")
        rerunning = self.deployment.engine.extension(BatchRepository).rerun(
            to_text(batch.uuid),
            RunFilter([*selection]),
            org=ORG,
            source_run=parent.uuid if named else None,
            all_runs=of == "all",
        )
        before = run.number + 1 if of_all else None
        chosen = [] if batch.deleted else self.model.selected(batch, parent.uuid, before, selection)
        goes_on = any(not task.state.terminal for task in self.model.tasks_of(run))
        if batch.deleted:
            self.followed("rerun", "gone")
            with pytest.raises(JobNotFound):
                self.deployment.do(rerunning)
        elif not self.model.can_rerun(batch) or (selection and goes_on):
            self.followed("rerun", "still runs")
            with pytest.raises(BatchStillRuns):
                self.deployment.do(rerunning)
        elif not chosen and (selection or run.completed_at is not None):
            self.followed("rerun", "nothing")
            with pytest.raises(NothingToRerun):
                self.deployment.do(rerunning)
        else:
            ended = run.completed_at is not None
            self.followed("rerun", "of a run that ended" if ended else "of a stuck run")
            view, created = self.deployment.do(rerunning)
            assert created.created
            part = self.deployment.do(
                self.deployment.connection.fetchval(
                    "SELECT id FROM batch_parts WHERE run_id = $1 AND position = 1",
                    view.current.uuid,
                )
            )
            self.model.rerun(batch, view.current.uuid, part, selection, parent, of_all=of_all)
            self.followed("rerun", f"of {of}")

    @precondition(lambda self: self._failed_parts())
    @rule(at=at, mended=st.booleans())
    def redrive(self, at: int, mended: bool) -> None:
        run, part = pick(self._failed_parts(), at)
        if mended:
            self._stage(part)
        letters = self.deployment.engine.extension(BatchRepository).dead_letters
        redriving = letters.redrive(ORG, to_text(part.uuid), None)
        if run.cancel_requested or run.batch.deleted:
            self.followed("redrive", "too late")
            with pytest.raises(NotFound):
                self.deployment.do(redriving)
            return
        self.followed("redrive", "mended" if mended else "in vain")
        self.deployment.do(redriving)
        part.state, part.redrives, part.updated_at = "pending", part.redrives + 1, self.model.now

    def _parts(self) -> list[ModelPart]:
        return [part for run in self.model.runs() for part in run.parts]

    def _failed_parts(self) -> list[tuple[ModelRun, ModelPart]]:
        return [
            (run, part) for run in self.model.runs() for part in run.parts if part.state == "failed"
        ]

    @precondition(lambda self: self.model.jobs)
    @rule(at=at)
    def cancel_a_task(self, at: int) -> None:
        task = pick(self.model.live() + self.model.having(*TERMINAL)[-1:], at)
        cancelling = self.deployment.engine.cancel(to_text(task.uuid), org=ORG)
        self.followed("cancel_a_task", task.state)
        if task.state.terminal:
            with pytest.raises(JobAlreadyEnded):
                self.deployment.do(cancelling)
            return
        self.deployment.do(cancelling)
        self.model.cancel(task)

    # Workers

    @rule(room=st.integers(1, 6))
    def claim(self, room: int) -> None:
        rooms = {Lane.STANDARD: room}
        free = self.deployment.do(self.worker.claim(rooms))
        check_free_claim(self.model, free, rooms, [ENDPOINT])
        self._took(free)
        limited = []
        if self.model.limits:
            limited = self.deployment.do(self.worker.claim_limited(rooms))
            check_limited_claim(self.model, limited, rooms, [ENDPOINT])
            self._took(limited)
        self.followed("claim", f"{'some' if free else 'none'} free")
        self.followed("claim", f"{'some' if limited else 'none'} limited")

    def _took(self, claimed: Sequence[ClaimedJob]) -> None:
        for job in claimed:
            task = self.model.jobs[job.uuid]
            assert job.payload == task.payload
            self.model.claim(task, job.lease)
            self.claimed[job.uuid] = job

    def _sort_out_what_is_stale(self) -> None:
        for uuid, claimed in list(self.claimed.items()):
            if self.model.holder_of(claimed) is None:
                self.stale.append(self.claimed.pop(uuid))

    def _late(self) -> list[ClaimedJob]:
        """Those who lost a lease: if there are any, those whose task somebody else holds by now."""
        held = {task.uuid for task in self.model.held()}
        return [claimed for claimed in self.stale if claimed.uuid in held] or self.stale

    @precondition(lambda self: self.claimed)
    @rule(at=at, together=st.integers(1, 4), with_stale=st.booleans())
    def complete(self, at: int, together: int, with_stale: bool) -> None:
        done = self._some(at, together) + (self._late()[:1] if with_stale else [])
        _, accepted = self.deployment.do(
            leases.exchange(
                self.deployment.line,
                self.worker.order(0),
                [FinishedJob(job, b'"done"', RAN_SECONDS) for job in done],
                KEEP_COMPLETED_SECONDS,
            )
        )
        ended = [task for task in map(self.model.holder_of, done) if task is not None]
        assert accepted == {task.uuid for task in ended}
        for task in ended:
            self.model.complete(task, b'"done"')
        self.followed("complete", "refused some" if len(accepted) < len(done) else "accepted all")

    @precondition(lambda self: self.claimed)
    @rule(
        at=at,
        together=st.integers(1, 3),
        event=st.sampled_from(
            (
                TransitionEvent.FAIL,
                TransitionEvent.FAIL,
                TransitionEvent.RETRY,
                TransitionEvent.RELEASE,
                TransitionEvent.ACKNOWLEDGE_CANCEL,
            )
        ),
    )
    def settle(self, at: int, together: int, event: TransitionEvent) -> None:
        self._settle(self._some(at, together), event)
        self.followed("settle", event)

    @precondition(lambda self: self.stale)
    @rule(
        at=at,
        event=st.sampled_from(
            (TransitionEvent.FAIL, TransitionEvent.RETRY, TransitionEvent.RELEASE)
        ),
    )
    def come_late(self, at: int, event: TransitionEvent) -> None:
        """Whoever lost its lease hands in all the same: nothing of it may be counted."""
        self._settle([pick(self._late(), at)], event)
        self.followed("come_late", event)

    def _settle(self, jobs: Sequence[ClaimedJob], event: TransitionEvent) -> None:
        code = (
            None
            if event in (TransitionEvent.RELEASE, TransitionEvent.ACKNOWLEDGE_CANCEL)
            else "broke"
        )
        settled = self.deployment.do(
            leases.settle(
                self.deployment.line,
                [Settlement(job, event, code, code, UNIT_SECONDS, RAN_SECONDS) for job in jobs],
                KEEP_FAILED_SECONDS,
            )
        )
        expected = {}
        for job in jobs:
            holder = self.model.holder_of(job)
            state = None if holder is None else self.model.settle(holder, event, code, 1)
            if state is not None:
                expected[job.uuid] = state
        assert {uuid: each.state for uuid, each in settled.items()} == expected

    def _some(self, at: int, most: int) -> list[ClaimedJob]:
        jobs = list(self.claimed.values())
        start = at % len(jobs)
        return jobs[start : start + most]

    @rule(fails=st.integers(0, 3))
    def work_off(self, fails: int) -> None:
        """All there is to do is done, so many tasks of it in vain, and counted."""
        self.claim(100)
        if self.claimed and fails:
            self.settle(0, fails, TransitionEvent.FAIL)
            self._sort_out_what_is_stale()
        if self.claimed:
            self.complete(0, len(self.claimed), True)
        self.tick(UsageRollup)
        self.followed("work_off")

    @precondition(lambda self: any(part.state != "done" for part in self._parts()))
    @rule(how=st.sampled_from(("well", "well", "dies before", "dies after", "fails")))
    def take_in(self, how: str) -> None:
        """The next list is taken in, as the job that does so would; or not, if its worker dies."""
        jobs = self.deployment.do(self.taker.claim({Lane.STANDARD: 1}))
        if not jobs:
            self.followed("take_in", "nothing")
            return
        (job,) = jobs
        if how == "fails":
            self.deployment.do(self.taker.settle(job, TransitionEvent.FAIL))
        elif how != "dies before":
            request = msgspec.json.decode(job.payload, type=dict[str, IngestRequest])["order"]
            outcome = self._take_in(request)
            if how == "dies after":
                pass
            elif outcome == "not its turn":
                self.deployment.do(
                    self.taker.settle(job, TransitionEvent.UNREACHABLE, delay=UNIT_SECONDS)
                )
            elif outcome == "failed":
                self.deployment.do(self.taker.settle(job, TransitionEvent.FAIL))
            else:
                self.deployment.do(self.taker.complete(job))
            self.followed("take_in", outcome)
        self.followed("take_in", how)

    def _take_in(self, request: IngestRequest) -> str:
        taking = self.ingester.ingest(request)
        found = self.model.part_of(request.part)
        if found is None:
            assert self.deployment.do(taking).state == "gone"
            return "gone"
        run, part = found
        was_pending = part.state == "pending"
        there = part.uuid in self.staged
        expected = self.model.take_in(run, part, list_is_there=there)
        if expected == "not its turn":
            with pytest.raises(TargetUnreachable):
                self.deployment.do(taking)
        elif expected == "failed" and was_pending:
            with pytest.raises(FailJob):
                self.deployment.do(taking)
        else:
            assert self.deployment.do(taking).state == expected
        if expected == "done":
            self.staged.discard(part.uuid)
        return expected

    @rule(rescued=st.booleans())
    def boot(self, rescued: bool) -> None:
        """Workers are started again: what they held is the old boots' while leases last."""
        if rescued:
            self.pass_time(max(LEASE_UNITS.values()))
            self.tick(Rescuer)
        self.deployment.do(self._boot())
        self.followed("boot", "and rescued" if rescued else "in time")

    # Time, and upkeep

    @rule(units=st.sampled_from((1, 1, 1, 2, 2, 3, 25, 1_300)))
    def pass_time(self, units: int) -> None:
        self.deployment.do(self.deployment.pass_time(units))
        self.model.now += units
        self.followed("pass_time", units)

    @rule(
        loop=st.sampled_from(
            (
                UsageRollup,
                UsageRollup,
                BatchCanceller,
                BatchRemover,
                IngestReconciler,
                Stager,
                Rescuer,
                Pruner,
            )
        )
    )
    def tick(self, loop: type[Loop]) -> None:
        lost = self.deployment.do(self.deployment.connection.fetch(LOST_PARTS))
        self.deployment.tick(loop)
        if loop is UsageRollup:
            self.deployment.tick(RunCompleter)
            self.model.keep_books()
        elif loop is BatchCanceller:
            self.model.cancel_runs()
        elif loop is BatchRemover:
            self.model.remove()
        elif loop is IngestReconciler:
            self.model.reconcile({row[0]: row[1] and State(row[1]) for row in lost})
        elif loop is Stager:
            self.model.stage()
        elif loop is Rescuer:
            self.model.rescue()
        self.followed("tick", loop.name)

    # What holds after every step

    @invariant()
    def the_database_is_as_the_oracle_says(self) -> None:
        self._sort_out_what_is_stale()
        self.deployment.do(check(self.deployment, self.model))

    def teardown(self) -> None:
        """However it stands, a run completes by itself once it is closed; and all of it goes."""
        for batch in self.model.shown():
            if not batch.current.closed:
                self.close(self._batches().index(batch))
        for _ in range(12):
            if all(run.completed_at is not None for run in self.model.runs()):
                break
            self.pass_time(max(LEASE_UNITS.values()))
            for loop in (Rescuer, Stager, IngestReconciler, BatchCanceller):
                self.tick(loop)
            self.boot(rescued=False)
            for run, part in self._failed_parts():
                self._stage(part)
                self.redrive(self._failed_parts().index((run, part)), False)
            for _ in self.model.batches:
                self.take_in("well")
            self._sort_out_what_is_stale()
            self.claim(100)
            if self.claimed:
                self.complete(0, len(self.claimed), True)
            self.tick(UsageRollup)
            self.the_database_is_as_the_oracle_says()
        assert all(run.completed_at is not None for run in self.model.runs()), "some never end"
        self.pass_time(KEEP_UNITS)
        for _ in range(40):
            if not self.model.batches:
                break
            self.tick(BatchRemover)
            self.tick(UsageRollup)
        self.the_database_is_as_the_oracle_says()
        assert not self.model.batches
        assert not self.model.jobs


def _lines(payloads: Sequence[bytes]) -> bytes:
    return b"".join(b"%s\n" % payload for payload in payloads)


def test_no_history_of_batches_leaves_the_oracle(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tasks are claimed in the order of their ids, which are made of their run's. And that successes
    # are not told too often is counted in units here, not in seconds of a busy machine.
    monkeypatch.setattr(repository, "new_id", lambda: UUID(int=next(BatchMachine.ids) << 64))
    monkeypatch.setattr(maintenance, "SUCCESSES_SECONDS", UNIT_SECONDS / 2)
    try_out(BatchMachine, databases, tmp_path, TABLES, examples=EXAMPLES)
