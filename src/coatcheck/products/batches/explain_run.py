"""Explains a batch's run: what blocks its next task, and when its last one may end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from coatcheck.core.explain import clock, plural, summary_of
from coatcheck.domain.explanation import Blocker, BlockerKind, Eta, Explanation, retry_after
from coatcheck.products.batches.model import BatchState, BatchView, RunView

_SLOW = 1.5
"""The slow estimate (``end_p90``) is this many times the average one."""


def explain_run(
    view: BatchView, run: RunView, task: Explanation | None, now: datetime
) -> Explanation:
    """The explanation of a run. ``task`` explains one of its tasks that have not ended, if any."""
    if run.status.terminal:
        return Explanation(view.id, run.status.value, True, _ended(run, now))
    blockers = [*_ingest_blockers(view, run), *(() if task is None else task.blockers)]
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


def with_task_id(explanation: Explanation, task_id: str) -> Explanation:
    """The explanation of a task, with the id that the batches API uses."""
    return replace(explanation, job_id=task_id)


def _ingest_blockers(view: BatchView, run: RunView) -> list[Blocker]:
    if run.cancel_requested_at is not None:
        return []
    if run.status is BatchState.INGESTING:
        return [
            Blocker(
                BlockerKind.WAITING_FOR_INPUT,
                f"Its list is being ingested; {plural(run.lines, 'line', 'lines')} so far.",
                since=run.created_at,
            )
        ]
    if run.status is BatchState.OPEN:
        return [
            Blocker(
                BlockerKind.WAITING_FOR_INPUT,
                "It is open: it accepts more tasks, and ends after it is closed.",
                since=view.created_at,
            )
        ]
    return []


def _progress(run: RunView) -> str:
    counts = run.counts
    ended = counts.succeeded + counts.failed + counts.cancelled
    return (
        f"{ended:,} of {plural(counts.total, 'task', 'tasks')} ended; {counts.running:,} running."
    )


def _sentence(blockers: Sequence[Blocker], eta: Eta | None) -> str:
    waiting = [each for each in blockers if each.kind is not BlockerKind.RUNNING]
    if waiting:
        return summary_of(waiting, eta)
    text = summary_of((Blocker(BlockerKind.RUNNING, ""),), eta)
    return text.strip()


def _eta(run: RunView, task: Explanation | None, now: datetime) -> Eta | None:
    counts = run.counts
    ended = counts.succeeded + counts.failed + counts.cancelled
    age = (now - run.created_at).total_seconds()
    if run.status is not BatchState.RUNNING or not ended or age <= 0:
        return None
    if task is not None and any(_is_stalled(each) for each in task.blockers):
        return None
    left = (counts.total - ended) * age / ended
    return Eta(0.0, 0.0, left, _SLOW * left)


def _is_stalled(blocker: Blocker) -> bool:
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
            text = (run.error_message or run.error_code or "no error was recorded").rstrip(".")
            return f"The ingest of its list failed: {text}. Redrive it, rerun it or delete it."
