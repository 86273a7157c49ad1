"""Batches, tasks and dead letters as text."""

from __future__ import annotations

from typing import Final

from coatcheck.client import Batch, BatchCounts, BatchTask, DeadLetter
from coatcheck.encoding import encode

_RESULT_CHARACTERS_MAX: Final = 200
_STATUSES: Final = ("pending", "running", "succeeded", "failed", "cancelled")


def report(batch: Batch) -> str:
    """A batch, on a few lines."""
    rows = [
        ("batch", f"{batch.id}  {batch.status}"),
        ("target", f"{batch.service} {batch.endpoint}"),
        ("counts", _counted(batch.counts)),
        ("list", f"{batch.ingest.lines:,} lines, {batch.ingest.bad_lines:,} of them no tasks"),
    ]
    if batch.error is not None:
        rows.append(("error", f"{batch.error.message} ({batch.error.code})"))
    if len(batch.runs) > 1:
        rows += [
            (f"run {run.number}", f"{run.id}  {run.status}  {_counted(run.counts)}")
            for run in batch.runs
        ]
        rows.append(("all runs", _counted(batch.job_counts)))
    return "\n".join(f"{name:<9}{value}" for name, value in rows)


def summary(batch: Batch) -> str:
    """A batch on one line."""
    return f"{batch.status}  {_counted(batch.counts)}  {batch.service} {batch.endpoint}"


def has_succeeded(batch: Batch) -> bool:
    """Whether every line was a task, and every task has succeeded."""
    return (
        batch.status == "completed"
        and batch.counts.succeeded == batch.counts.total
        and batch.ingest.bad_lines == 0
    )


def task_line(task: BatchTask) -> str:
    """A task on one line: its number, status and name, and what it came to."""
    outcome = ""
    if task.error is not None:
        outcome = f"{task.error.code}: {task.error.message}"
    elif task.result_url is not None:
        outcome = "(a long result)"
    elif task.status == "succeeded":
        outcome = encode(task.result).decode()
    if len(outcome) > _RESULT_CHARACTERS_MAX:
        outcome = f"{outcome[:_RESULT_CHARACTERS_MAX]}..."
    # What a task or a caller has named is shown on its line, whatever is in it.
    shown = f"{task.index:>7}  {task.status:<9}  {task.custom_id or task.id}  {outcome}"
    return "".join(c if c.isprintable() else " " for c in shown).rstrip()


def dead_letter_line(letter: DeadLetter) -> str:
    """A list that could not be taken in, on one line."""
    return f"{letter.id}  batch {letter.job_id}  {letter.error.code}: {letter.error.message}"


def _counted(counts: BatchCounts) -> str:
    numbers = {name: getattr(counts, name) for name in _STATUSES}
    return ", ".join(
        [f"{counts.total:,} tasks", *(f"{n:,} {name}" for name, n in numbers.items() if n)]
    )
