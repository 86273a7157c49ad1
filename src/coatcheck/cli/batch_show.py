"""Formats batches, tasks and dead letters as text."""

from __future__ import annotations

from typing import Final

from coatcheck.client import Batch, BatchCounts, BatchTask, DeadLetter
from coatcheck.encoding import encode

_RESULT_CHARACTERS_MAX: Final = 200
_STATUSES: Final = ("pending", "running", "succeeded", "failed", "cancelled")


def report(batch: Batch) -> str:
    """A batch on several lines."""
    rows = [
        ("batch", f"{batch.id}  {batch.status}"),
        ("target", f"{batch.service} {batch.endpoint}"),
        ("counts", _counted(batch.counts)),
        ("list", f"{_number(batch.ingest.lines, 'line')}, {batch.ingest.bad_lines:,} invalid"),
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
    """Whether every line was a valid task and every task succeeded."""
    return (
        batch.status == "completed"
        and batch.counts.succeeded == batch.counts.total
        and batch.ingest.bad_lines == 0
    )


def task_line(task: BatchTask) -> str:
    """A task on one line: index, status, name, and its result or error."""
    outcome = ""
    if task.error is not None:
        outcome = f"{task.error.code}: {task.error.message}"
    elif task.result_url is not None:
        outcome = "(large result)"
    elif task.status == "succeeded":
        outcome = encode(task.result).decode()
    if len(outcome) > _RESULT_CHARACTERS_MAX:
        outcome = f"{outcome[:_RESULT_CHARACTERS_MAX]}..."
    # Names and results may contain control characters.
    shown = f"{task.index:>7}  {task.status:<9}  {task.custom_id or task.id}  {outcome}"
    return "".join(c if c.isprintable() else " " for c in shown).rstrip()


def dead_letter_line(letter: DeadLetter) -> str:
    """A list of tasks that could not be processed, on one line."""
    return f"{letter.id}  batch {letter.job_id}  {letter.error.code}: {letter.error.message}"


def _counted(counts: BatchCounts) -> str:
    numbers = {name: getattr(counts, name) for name in _STATUSES}
    return ", ".join(
        [_number(counts.total, "task"), *(f"{n:,} {name}" for name, n in numbers.items() if n)]
    )


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
