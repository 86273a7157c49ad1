"""The oracle of batches: runs, their parts and their counters, on top of that of jobs.

Ids of tasks are not drawn but computed, so the model knows beforehand which there will be. The jobs
that take lists in are none of its business: only what comes of them is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal
from uuid import UUID

from coatcheck.domain.ids import run_queue_key
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State
from coatcheck.products.batches.maintenance import RESUBMITS_MAX
from coatcheck.products.batches.model import (
    ABANDONED_BATCH_SECONDS,
    BatchState,
    TaskCounts,
    TaskStatus,
    task_id,
)
from tests.properties.job_model import JobModel, ModelJob
from tests.properties.stepped_deployment import UNIT_SECONDS

FORGOTTEN_UNITS: Final = ABANDONED_BATCH_SECONDS / UNIT_SECONDS
ENDS: Final = {
    TaskStatus.SUCCEEDED: State.COMPLETED,
    TaskStatus.FAILED: State.FAILED,
    TaskStatus.CANCELLED: State.CANCELLED,
}
"""In the order in which a rerun takes them."""

PartState = Literal["pending", "done", "failed"]
BatchTold = tuple[UUID, UUID, UUID, str, tuple[object, ...]]
"""A row of the outbox about a batch: batch, run, target, event, and what it says."""


@dataclass
class ModelPart:
    """One source of tasks."""

    uuid: UUID
    state: PartState
    created_at: float
    updated_at: float
    key: str | None = None
    list_of: Sequence[bytes] = ()
    """The payloads on a staged list."""
    rerun_of: UUID | None = None
    before: int | None = None
    """Of a rerun of the whole batch: the latest tasks of runs numbered below this."""
    selection: tuple[TaskStatus, ...] = ()
    redrives: int = 0


@dataclass
class ModelRun:
    """A run of a batch."""

    uuid: UUID
    batch: ModelBatch
    number: int
    created_at: float
    parent: UUID | None = None
    tasks: int = 0
    positions: list[int] = field(default_factory=list)
    """Of each task, its number in the batch."""
    total: int | None = None
    closed: bool = False
    cancel_requested: bool = False
    completed_at: float | None = None
    parts: list[ModelPart] = field(default_factory=list)
    counted: Counter[State] = field(default_factory=Counter)
    """The ends that are in its row, and those that are not summed up yet."""
    fresh: Counter[State] = field(default_factory=Counter)
    succeeded_told: int = 0
    told_at: float | None = None

    @property
    def latched(self) -> bool:
        return self.total is not None

    @property
    def is_open_for_good(self) -> bool:
        """Whether a part that failed keeps it from its end."""
        waits = any(part.state == "pending" for part in self.parts)
        return any(part.state == "failed" for part in self.parts) and not waits

    @property
    def status(self) -> BatchState:
        if self.completed_at is not None:
            return BatchState.CANCELLED if self.cancel_requested else BatchState.COMPLETED
        if self.latched:
            return BatchState.RUNNING
        if not self.closed:
            return BatchState.OPEN
        return BatchState.FAILED_INGEST if self.is_open_for_good else BatchState.INGESTING


@dataclass
class ModelBatch:
    """A batch with its runs, the current one last."""

    uuid: UUID
    org: str
    endpoint: str
    lane: Lane
    failures_max: int
    is_open: bool
    keep: float
    key: str | None = None
    concurrency: int | None = None
    target: UUID | None = None
    events: tuple[str, ...] = ()
    runs: list[ModelRun] = field(default_factory=list)
    positions: int = 0
    """How many tasks it has, each counted once over all runs."""
    deleted: bool = False
    expires_at: float | None = None

    @property
    def current(self) -> ModelRun:
        return self.runs[-1]


class BatchModel(JobModel):
    """All batches there should be, and their tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: dict[UUID, ModelBatch] = {}
        self.batch_told: Counter[BatchTold] = Counter()

    # Looking

    def runs(self) -> Iterator[ModelRun]:
        for batch in self.batches.values():
            yield from batch.runs

    def run_of(self, uuid: UUID) -> ModelRun | None:
        return next((run for run in self.runs() if run.uuid == uuid), None)

    def tasks_of(self, run: ModelRun) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.run == run.uuid]

    def shown(self) -> list[ModelBatch]:
        return [batch for batch in self.batches.values() if not batch.deleted]

    def counts_of(self, run: ModelRun) -> TaskCounts:
        """What a reader is to see: every end, summed up or not."""
        ends = run.counted + run.fresh
        return TaskCounts(
            run.tasks,
            sum(job.state.held for job in self.tasks_of(run)),
            ends[State.COMPLETED],
            ends[State.FAILED],
            ends[State.CANCELLED],
        )

    def latest_of(self, batch: ModelBatch, before: int) -> dict[int, ModelJob]:
        """The latest task of each position, as of the runs that are numbered below ``before``."""
        return {
            position: self.jobs[UUID(bytes=task_id(run.uuid, index))]
            for run in batch.runs
            if run.number < before
            for index, position in enumerate(run.positions)
        }

    def whole_of(self, batch: ModelBatch) -> TaskCounts:
        """What a reader is to see of the batch over all runs."""
        latest = self.latest_of(batch, batch.current.number + 1).values()
        states = Counter(job.state for job in latest)
        return TaskCounts(
            len(latest),
            sum(job.state.held for job in latest),
            *(states[state] for state in ENDS.values()),
        )

    def part_of(self, uuid: UUID) -> tuple[ModelRun, ModelPart] | None:
        return next(
            ((run, part) for run in self.runs() for part in run.parts if part.uuid == uuid), None
        )

    # Callers

    def create(self, batch: ModelBatch, run: UUID, parts: Sequence[ModelPart]) -> None:
        self.batches[batch.uuid] = batch
        made = ModelRun(run, batch, 1, self.now, closed=not batch.is_open, parts=list(parts))
        batch.runs.append(made)
        self._limit(made, batch.concurrency)

    def write(
        self, run: ModelRun, payloads: Sequence[bytes], positions: Sequence[int] | None = None
    ) -> None:
        """Tasks are added to a run, numbered on; without ``positions`` new ones of the batch."""
        batch = run.batch
        if positions is None:
            positions = range(batch.positions, batch.positions + len(payloads))
            batch.positions += len(payloads)
        run.positions += positions
        tells = {}
        if batch.target is not None and "task.failed" in batch.events:
            tells = {batch.target: 3}
        for payload in payloads:
            task = ModelJob(
                batch.org,
                UUID(bytes=task_id(run.uuid, run.tasks)),
                batch.lane,
                batch.endpoint,
                run_queue_key(run.uuid),
                payload,
                batch.failures_max,
                self.now,
                self.now,
                tells=tells,
                run=run.uuid,
                task_index=run.tasks,
            )
            self.submit(task)
            run.tasks += 1

    def latch(self, run: ModelRun) -> None:
        if run.closed and not run.latched and all(part.state == "done" for part in run.parts):
            run.total = run.tasks

    def stop(self, run: ModelRun) -> None:
        run.cancel_requested = True
        run.closed = True
        self.limits[run.batch.org, "run", run.uuid.hex] = 0

    def delete(self, batch: ModelBatch) -> None:
        batch.deleted, batch.key = True, None
        if batch.current.completed_at is None:
            self.stop(batch.current)

    def rerun(
        self,
        batch: ModelBatch,
        run: UUID,
        part: UUID,
        selection: tuple[TaskStatus, ...],
        parent: ModelRun,
        *,
        of_all: bool,
    ) -> None:
        old = batch.current
        stuck = [each for each in old.parts if each.state == "failed"]
        taking = ModelPart(
            part,
            "pending",
            self.now,
            self.now,
            rerun_of=parent.uuid,
            before=old.number + 1 if of_all else None,
            selection=selection,
        )
        new = ModelRun(
            run, batch, old.number + 1, self.now, parent=parent.uuid, closed=True, parts=[taking]
        )
        batch.runs.append(new)
        batch.expires_at = None
        self._limit(new, batch.concurrency)
        if stuck:
            for each in stuck:
                if each.rerun_of is not None and (of_all or parent is not old):
                    continue
                old.parts.remove(each)
                each.state, each.redrives, each.updated_at = "pending", each.redrives + 1, self.now
                new.parts.append(each)
            self.stop(old)

    def can_rerun(self, batch: ModelBatch) -> bool:
        run = batch.current
        stuck = (
            run.closed
            and not run.cancel_requested
            and any(part.state == "failed" for part in run.parts)
        )
        waits = any(part.state == "pending" for part in run.parts)
        return (run.completed_at is not None or stuck) and not waits

    def selected(
        self,
        batch: ModelBatch,
        run: UUID,
        before: int | None,
        selection: tuple[TaskStatus, ...],
    ) -> list[tuple[ModelJob, int]]:
        """The tasks that a rerun takes, in its order, each with its position."""
        latest = None if before is None else self.latest_of(batch, before)
        if latest is not None and not selection:
            return [(task, position) for position, task in sorted(latest.items())]
        tasks = [
            (self.jobs[UUID(bytes=task_id(each.uuid, index))], position)
            for each in batch.runs
            if (each.uuid == run if before is None else each.number < before)
            for index, position in enumerate(each.positions)
        ]
        if latest is not None:
            tasks = [(task, position) for task, position in tasks if latest[position] is task]
        if not selection:
            return tasks
        ways = [state for status, state in ENDS.items() if status in selection]
        return [(task, position) for way in ways for task, position in tasks if task.state is way]

    def take_in(self, run: ModelRun, part: ModelPart, *, list_is_there: bool) -> str:
        """What taking a part in comes to, in a word."""
        if run.cancel_requested or run.completed_at is not None or run.batch.deleted:
            return "cancelled"
        if part.state == "pending":
            before = run.parts[: run.parts.index(part)]
            if any(other.state == "pending" for other in before):
                return "not its turn"
            earlier = [each for each in run.batch.runs if each.number < run.number]
            if part.rerun_of is not None and any(each.completed_at is None for each in earlier):
                return "not its turn"
            if part.rerun_of is None and not list_is_there:
                part.state, part.updated_at = "failed", self.now
                return "failed"
            if part.rerun_of is None:
                self.write(run, list(part.list_of))
            else:
                chosen = self.selected(run.batch, part.rerun_of, part.before, part.selection)
                payloads = [task.payload or b"" for task, _ in chosen]
                self.write(run, payloads, [position for _, position in chosen])
            part.state, part.updated_at = "done", self.now
        if part.state == "done":
            self.latch(run)
        return part.state

    # Upkeep

    def keep_books(self) -> None:
        for run in self.runs():
            run.counted += run.fresh
            run.fresh = Counter()
        for run in self.runs():
            ended = run.latched and run.completed_at is None
            if ended and run.counted.total() == run.total:
                self._complete(run)
        for run in self.runs():
            self._tell_successes(run)

    def _complete(self, run: ModelRun) -> None:
        batch = run.batch
        run.completed_at = self.now
        self._limit(run, None)
        is_current = batch.current is run
        if is_current:
            batch.expires_at = self.now + batch.keep
        if is_current and not batch.deleted:
            untold = run.counted[State.COMPLETED] - run.succeeded_told
            if batch.target is not None and "tasks.succeeded" in batch.events and untold:
                self._say(run, batch.target, "tasks.succeeded", (untold,))
            said = (
                run.status.value,
                run.number,
                run.total,
                *(run.counted[state] for state in ENDS.values()),
            )
            if batch.target is not None and "completed" in batch.events:
                self._say(run, batch.target, f"batch.{run.status}", said)
            for listener, events in self.listeners.get(batch.org, {}).items():
                if f"batch.{run.status}" in events:
                    self._say(run, listener, f"batch.{run.status}", said)
        run.succeeded_told = run.counted[State.COMPLETED]

    def _tell_successes(self, run: ModelRun) -> None:
        batch = run.batch
        untold = run.counted[State.COMPLETED] - run.succeeded_told
        is_early = run.told_at is not None and run.told_at >= self.now
        if run.completed_at is not None or batch.deleted or not untold or is_early:
            return
        if batch.target is not None and "tasks.succeeded" in batch.events:
            self._say(run, batch.target, "tasks.succeeded", (untold,))
            run.succeeded_told += untold
            run.told_at = self.now

    def _say(self, run: ModelRun, target: UUID, event: str, said: tuple[object, ...]) -> None:
        self.batch_told[run.batch.uuid, run.uuid, target, event, said] += 1

    def cancel_runs(self) -> None:
        for run in self.runs():
            if not run.cancel_requested or run.completed_at is not None:
                continue
            if not run.latched:
                run.total = run.tasks
            run.closed = True
            for part in run.parts:
                part.state = "done"
            self.cancel_tasks_of(run.uuid)

    def reconcile(self, lost: dict[UUID, State | None]) -> None:
        """``lost`` are the parts whose job has ended or is gone, and how the job stands."""
        for run in self.runs():
            if run.completed_at is None:
                self.latch(run)
        for run in self.runs():
            if run.cancel_requested or run.batch.deleted:
                continue
            for part in run.parts:
                if part.state != "pending" or part.uuid not in lost:
                    continue
                part.updated_at = self.now
                if lost[part.uuid] is not State.FAILED and part.redrives < RESUBMITS_MAX:
                    part.redrives += 1
                else:
                    part.state = "failed"

    def remove(self) -> None:
        for batch in self.shown():
            forgotten = any(
                part.state == "failed" and part.updated_at + FORGOTTEN_UNITS <= self.now
                for part in batch.current.parts
            )
            over = batch.expires_at is not None and batch.expires_at <= self.now
            if forgotten or over:
                batch.deleted, batch.key = True, None
        for run in self.runs():
            last = run.parts[-1].created_at if run.parts else run.created_at
            if not run.closed and max(last, run.created_at) + FORGOTTEN_UNITS <= self.now:
                run.closed = True
        for batch in list(self.batches.values()):
            if batch.deleted:
                self._remove_some_of(batch)

    def _remove_some_of(self, batch: ModelBatch) -> None:
        for run in batch.runs:
            if run.completed_at is None and not run.cancel_requested:
                run.cancel_requested = True
                self.limits[batch.org, "run", run.uuid.hex] = 0
        for run in batch.runs:
            goes_on = any(not task.state.terminal for task in self.tasks_of(run))
            if goes_on or not run.latched:
                return
        for run in batch.runs:
            if run.tasks:
                for task in self.tasks_of(run):
                    del self.jobs[task.uuid]
                run.tasks = 0
                run.positions.clear()
                return
        for run in batch.runs:
            if run.parts:
                run.parts.clear()
                return
        if not any(run.fresh for run in batch.runs):
            for run in batch.runs:
                self._limit(run, None)
            del self.batches[batch.uuid]

    # What a move brings with it

    def _end(self, job: ModelJob, payload_bytes: int, attempts: int | None = None) -> None:
        super()._end(job, payload_bytes, attempts)
        run = None if job.run is None else self.run_of(job.run)
        assert run is not None
        run.fresh[job.state] += 1

    def _limit(self, run: ModelRun, held_max: int | None) -> None:
        limit = (run.batch.org, "run", run.uuid.hex)
        if held_max is None:
            self.limits.pop(limit, None)
        else:
            self.limits[limit] = held_max
