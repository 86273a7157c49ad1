"""Turns batches, runs, tasks, exports and dead letters into response bodies."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from coatcheck.core.upstream_calls import shown_result
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.ids import to_text
from coatcheck.domain.states import State
from coatcheck.products.batches import schemas
from coatcheck.products.batches.model import (
    BatchView,
    ExportView,
    FailedPart,
    RunFilter,
    RunView,
    TaskCounts,
    TaskView,
)

JOBS: Final = "/v1/jobs"
DLQ: Final = "/v1/dlq"

_decode_filter: Final = msgspec.json.Decoder(RunFilter).decode


def poll_url(job_id: str) -> str:
    return f"{JOBS}/{job_id}"


def urls(job_id: str) -> schemas.BatchUrls:
    """The URLs of a job and of everything that belongs to it."""
    poll = poll_url(job_id)
    names = ("events", "cancel", "close", "tasks", "bad-lines", "rerun", "exports")
    return schemas.BatchUrls(poll, *(f"{poll}/{name}" for name in names))


def job(view: BatchView) -> schemas.BatchJob:
    """The body of a job."""
    run = view.current
    return schemas.BatchJob(
        id=view.id,
        type="open" if view.is_open else "closed",
        status=run.status.value,
        service=view.service,
        endpoint=view.service_endpoint,
        lane=view.lane,
        concurrency=view.concurrency,
        rate=_rate(view),
        webhook_events=[*view.webhook_events],
        metadata=schemas.raw(view.metadata),
        counts=counts(run.counts),
        job_counts=counts(view.whole),
        progress=progress(run),
        ingest=_ingest(run),
        runs=[*map(_run, view.runs)],
        cancel_requested=run.cancel_requested_at is not None and not run.status.terminal,
        created_at=view.created_at,
        completed_at=view.completed_at,
        expires_at=view.expires_at,
        terminal=run.status.terminal,
        urls=urls(view.id),
    )


def job_progress(view: BatchView) -> schemas.BatchProgress:
    """The data of a ``progress`` event."""
    run = view.current
    return schemas.BatchProgress(
        run.id,
        run.status.value,
        counts(run.counts),
        counts(view.whole),
        progress(run),
        _ingest(run),
    )


def counts(tasks: TaskCounts) -> schemas.TaskCountsBody:
    return schemas.TaskCountsBody(
        total=tasks.total,
        pending=tasks.pending,
        running=tasks.running,
        succeeded=tasks.succeeded,
        failed=tasks.failed,
        cancelled=tasks.cancelled,
    )


def progress(run: RunView) -> float:
    """The share of the ingested tasks that have ended, from 0 to 1. It is 1 only when the run has
    ended."""
    if run.completed_at is not None:
        return 1.0
    tasks = run.counts
    return min(round(tasks.ended / tasks.total, 6), 0.999999) if tasks.total else 0.0


def etag(view: BatchView) -> bytes:
    """A weak ETag, which changes with every state and every count."""
    shown = [
        (run.id, run.status.value, run.counts, run.lines, run.bad_lines, run.cancel_requested_at)
        for run in view.runs
    ]
    digest = hashlib.blake2b(repr((shown, view.expires_at)).encode(), digest_size=12)
    return f'W/"{digest.hexdigest()}"'.encode("ascii")


def task(view: BatchView, shown: TaskView) -> schemas.BatchTaskBody:
    """A task in a page. ``result_url`` replaces a long result."""
    return schemas.BatchTaskBody(**_task_fields(view, shown))


def whole_task(
    view: BatchView, shown: TaskView, artifacts: list[schemas.TaskArtifact]
) -> schemas.WholeTask:
    """A task with its input and its artifacts."""
    return schemas.WholeTask(
        **_task_fields(view, shown),
        input=schemas.raw(task_input(view, shown)),
        artifacts=artifacts,
    )


def _task_fields(view: BatchView, shown: TaskView) -> dict[str, Any]:
    poll = f"{poll_url(view.id)}/tasks/{shown.id}"
    result = task_result(view, shown)
    is_left_out = result is None and shown.result_bytes is not None
    return {
        "id": shown.id,
        "index": shown.index,
        "job_index": shown.position,
        "custom_id": shown.custom_id,
        "run_id": to_text(shown.run),
        "status": shown.status.value,
        "attempts": shown.attempts,
        "result": schemas.raw(result),
        "result_url": f"{poll}/result" if is_left_out else None,
        "error": _error(shown.error_code, shown.error_message),
        "created_at": shown.created_at,
        "started_at": shown.started_at,
        "finished_at": shown.finished_at,
        "expires_at": view.expires_at,
        "terminal": shown.state.terminal,
        "urls": schemas.TaskUrls(poll, f"{poll}/result", poll_url(view.id), f"{poll}/artifacts"),
    }


def task_result(view: BatchView, shown: TaskView) -> bytes | None:
    """A task's result as callers see it. For an http upstream it is the body of the response."""
    if shown.result is None or shown.state is not State.COMPLETED:
        return None
    return shown_result(shown.result) if view.endpoint == UPSTREAM_ENDPOINT else shown.result


def task_input(view: BatchView, shown: TaskView) -> bytes | None:
    """The task's input as the caller sent it: its payload without the batch's prefix and suffix."""
    if shown.input is None:
        return None
    return shown.input.removeprefix(view.payload_prefix).removesuffix(view.payload_suffix)


def export(view: ExportView, url: str | None) -> schemas.ExportBody:
    job_url = poll_url(to_text(view.batch))
    export_id = to_text(view.uuid)
    return schemas.ExportBody(
        id=export_id,
        job_id=to_text(view.batch),
        run_id=to_text(view.run),
        all_runs=view.all_runs,
        status=view.state,  # type: ignore[arg-type]  # a CHECK of the table says which there are
        url=url,
        expires_at=view.expires_at,
        bytes=view.size,
        sha256=None if view.sha256 is None else view.sha256.hex(),
        tasks=view.tasks_written,
        error=_error(view.error_code, view.error_message),
        created_at=view.created_at,
        completed_at=view.completed_at,
        terminal=view.state != "pending",
        urls=schemas.ExportUrls(f"{job_url}/exports/{export_id}", job_url),
    )


def dead_letter(letter: FailedPart) -> schemas.DeadLetterItem:
    letter_id = to_text(letter.uuid)
    return schemas.DeadLetterItem(
        id=letter_id,
        job_id=to_text(letter.batch),
        run_id=to_text(letter.run),
        source=letter.source,
        error=schemas.TaskError.of(letter.error_code, letter.error_message),
        lines=letter.lines,
        tasks=letter.tasks,
        redrives=letter.redrives,
        created_at=letter.created_at,
        failed_at=letter.failed_at,
        urls=schemas.DeadLetterUrls(f"{DLQ}/{letter_id}/redrive", poll_url(to_text(letter.batch))),
    )


def _run(run: RunView) -> schemas.BatchRunBody:
    return schemas.BatchRunBody(
        id=run.id,
        number=run.number,
        parent_run_id=None if run.parent is None else to_text(run.parent),
        filter=None if run.selection is None else _decode_filter(run.selection),
        repeats_all=run.repeats_all,
        status=run.status.value,
        counts=counts(run.counts),
        ingest=_ingest(run),
        created_at=run.created_at,
        completed_at=run.completed_at,
    )


def _ingest(run: RunView) -> schemas.IngestBody:
    return schemas.IngestBody(run.lines, run.bad_lines, _error(run.error_code, run.error_message))


def _rate(view: BatchView) -> schemas.BatchRate | None:
    if view.rate_per_second is None and view.rate_key_per_second is None:
        return None
    return schemas.BatchRate(view.rate_per_second, view.rate_key, view.rate_key_per_second)


def _error(code: str | None, message: str | None) -> schemas.TaskError | None:
    return None if code is None else schemas.TaskError.of(code, message)
