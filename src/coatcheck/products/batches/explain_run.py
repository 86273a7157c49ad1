"""Says the same of a batch's run: what its next task waits for, and when the last one may end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from coatcheck.core.explain import clock, counted, sentence_of
from coatcheck.domain.explanation import Blocker, BlockerKind, Eta, Explanation, retry_after
from coatcheck.products.batches.model import BatchState, BatchView, RunView

_SLOW = 1.5
"""A run that goes on as slowly as most slow ones do takes so much longer."""


def explained_run(
    view: BatchView, run: RunView, task: Explanation | None, now: datetime
) -> Explanation:
    """From the explanation of a task that stands for those that have not ended, if any have not."""
    if run.status.terminal:
        return Explanation(view.id, run.status.value, True, _ended(run, now))
    blockers = [*_intake(view, run), *(() if task is None else task.blockers)]
    if any(each.kind is not BlockerKind.RUNNING for each in blockers):
        blockers = [each for each in blockers if each.kind is not BlockerKind.RUNNING]
    eta = _eta(run, task, now)
    return Explanation(
        job_id=view.id,
        state=run.status.value,
        terminal=False,
        summary=f"{_progress(run)} {_sentence(blockers, eta)}".rstrip(),
        blockers=blockers,
        position=None if task is None else task.position,
        eta=eta,
        retry_after=0 if eta is None else retry_after(eta.end_p50),
    )


def of_task(explanation: Explanation, task_id: str) -> Explanation:
    """A task's own, by the id that it has among its batch's tasks."""
    return replace(explanation, job_id=task_id)


def _intake(view: BatchView, run: RunView) -> list[Blocker]:
    if run.cancel_requested_at is not None:
        return []
    if run.status is BatchState.INGESTING:
        return [
            Blocker(
                BlockerKind.WAITING_FOR_INPUT,
                f"Its list is being taken in; {counted(run.lines, 'line', 'lines')} so far.",
                since=run.created_at,
            )
        ]
    if run.status is BatchState.OPEN:
        return [
            Blocker(
                BlockerKind.WAITING_FOR_INPUT,
                "It is open: it takes more tasks, and ends once it is closed.",
                since=view.created_at,
            )
        ]
    return []


def _progress(run: RunView) -> str:
    counts = run.counts
    ended = counts.succeeded + counts.failed + counts.cancelled
    return (
        f"{ended:,} of {counted(counts.total, 'task', 'tasks')} ended; {counts.running:,} running."
    )


def _sentence(blockers: Sequence[Blocker], eta: Eta | None) -> str:
    waiting = [each for each in blockers if each.kind is not BlockerKind.RUNNING]
    if waiting:
        return sentence_of(waiting, eta)
    said = sentence_of((Blocker(BlockerKind.RUNNING, ""),), eta)
    return said.strip()


def _eta(run: RunView, task: Explanation | None, now: datetime) -> Eta | None:
    counts = run.counts
    ended = counts.succeeded + counts.failed + counts.cancelled
    age = (now - run.created_at).total_seconds()
    if run.status is not BatchState.RUNNING or not ended or age <= 0:
        return None
    if task is not None and any(_stands_still(each) for each in task.blockers):
        return None
    left = (counts.total - ended) * age / ended
    return Eta(0.0, 0.0, left, _SLOW * left)


def _stands_still(blocker: Blocker) -> bool:
    return blocker.kind in (
        BlockerKind.PAUSED,
        BlockerKind.NO_WORKER,
        BlockerKind.TARGET_UNREACHABLE,
    )


def _ended(run: RunView, now: datetime) -> str:
    at = clock(run.completed_at or run.created_at, now)
    match run.status:
        case BatchState.COMPLETED:
            return f"{_progress(run)} It completed at {at}."
        case BatchState.CANCELLED:
            return f"{_progress(run)} It was cancelled."
        case _:
            said = (run.error_message or run.error_code or "no reason was given").rstrip(".")
            return f"Its list could not be taken in: {said}. Redrive it, rerun it or delete it."
