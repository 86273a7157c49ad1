"""Renders jobs and their timelines as bodies of the console API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from coatcheck.domain.ids import to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.org_jobs import Attempt, OrgJob
from coatcheck.domain.states import State
from coatcheck.http.job_adapters import JobAdapter, JobAdapters, JobPaths
from coatcheck.http.parameters import shown_key
from coatcheck.products.console import schemas
from coatcheck.products.console.schemas import TimelineItem, TimelineKind

_OUTCOMES: Final[dict[str, TimelineKind]] = {
    "failed": "attempt_failed",
    "crashed": "crashed",
    "interrupted": "interrupted",
    "target_unreachable": "target_unreachable",
    "postponed": "postponed",
    "cancelled": "interrupted",
}


def timeline(
    job: OrgJob, attempts: Sequence[Attempt], spawned_at: datetime | None
) -> list[TimelineItem]:
    """What happened to a job, in order. ``spawned_at`` is when a remote last began its work."""
    items = [
        *_beginning(job, attempts),
        *(item for attempt in attempts for item in _attempt(attempt)),
        *_under_way(job, attempts, spawned_at),
        *_end(job),
    ]
    # The sort is stable: items of the same time stay in this order.
    return sorted(items, key=lambda item: item.at)


def _beginning(job: OrgJob, attempts: Sequence[Attempt]) -> Iterator[TimelineItem]:
    view = job.view
    waits = not attempts and view.run_at > view.created_at
    first = State.STAGED if waits else State.QUEUED
    yield _item(view.created_at, "created", first)
    if not waits:
        yield _item(view.created_at, "queued", State.QUEUED)
        return
    yield _item(view.created_at, "scheduled", State.STAGED, message=_due(view.run_at))
    if view.state is not State.STAGED and (view.finished_at or view.read_at) >= view.run_at:
        yield _item(view.run_at, "queued", State.QUEUED)


def _attempt(attempt: Attempt) -> Iterator[TimelineItem]:
    number = attempt.attempt
    yield from _begun(attempt.dispatched_at, attempt.started_at, number)
    state = State(attempt.state)
    yield TimelineItem(
        attempt.ended_at,
        _OUTCOMES[attempt.outcome],
        state,
        number,
        attempt.code,
        attempt.message,
    )
    if attempt.next_run_at is not None:
        message = _due(attempt.next_run_at)
        yield _item(attempt.ended_at, "retry_scheduled", state, attempt=number, message=message)


def _under_way(
    job: OrgJob, attempts: Sequence[Attempt], spawned_at: datetime | None
) -> Iterator[TimelineItem]:
    """The current attempt, or the one that completed the job: its end is not in ``attempts``."""
    view = job.view
    recorded = {attempt.dispatched_at for attempt in attempts}
    is_new = view.dispatched_at is not None and view.dispatched_at not in recorded
    if is_new and (view.state.held or view.terminal):
        number = view.failures + view.crashes + (view.state.held or view.state is State.COMPLETED)
        yield from _begun(view.dispatched_at, view.started_at, number or None)
    if spawned_at is not None:
        yield _item(
            spawned_at,
            "remote_spawned",
            State.PROCESSING,
            message=f"the remote's id is {view.execution_id}" if view.execution_id else None,
        )
    if view.state is State.CANCEL_REQUESTED:
        yield _item(view.updated_at, "cancel_requested", view.state)


def _begun(
    dispatched_at: datetime | None, started_at: datetime | None, number: int | None
) -> Iterator[TimelineItem]:
    if dispatched_at is not None:
        yield _item(dispatched_at, "claimed", State.DISPATCHING, attempt=number)
    if started_at is not None:
        # The start is computed back from the handler's running time, and may come out a little
        # before the claim.
        at = started_at if dispatched_at is None else max(started_at, dispatched_at)
        yield _item(at, "started", State.PROCESSING, attempt=number)


def _end(job: OrgJob) -> Iterator[TimelineItem]:
    view = job.view
    if view.finished_at is not None:
        yield TimelineItem(
            view.finished_at, "finished", view.state, None, view.error_code, view.error_message
        )


def _item(
    at: datetime,
    kind: TimelineKind,
    state: State,
    *,
    attempt: int | None = None,
    message: str | None = None,
) -> TimelineItem:
    return TimelineItem(at, kind, state, attempt, None, message)


def _due(moment: datetime) -> str:
    return f"due at {moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


_NO_RESULT: Final = msgspec.Raw(b"null")


class ConsolePresenter:
    """Renders jobs for the console."""

    def __init__(self, adapters: JobAdapters) -> None:
        self._adapters = adapters

    async def whole(self, job: OrgJob) -> schemas.OrgJobBody:
        """The job with its result."""
        adapter = self._adapters.of(job)
        result = adapter.result(job)
        return schemas.OrgJobBody(
            **await _fields(job, adapter),
            result=_NO_RESULT if result is None else msgspec.Raw(result),
            result_truncated=result is None and job.view.result_bytes is not None,
        )

    async def item(self, job: OrgJob) -> schemas.OrgJobItem:
        """The job in a list, without its result."""
        return schemas.OrgJobItem(**await _fields(job, self._adapters.of(job)))


def job_url(org: str, job_id: str) -> str:
    """The console's URL of a job."""
    return f"/api/v1/orgs/{quote(org, safe='')}/jobs/{job_id}"


async def _fields(job: OrgJob, adapter: JobAdapter) -> dict[str, Any]:
    view, task = job.view, job.task
    service, endpoint = await adapter.label(job)
    return {
        "id": job.id,
        "org_id": view.org,
        "surface": adapter.product,
        "service": service,
        "endpoint": endpoint,
        "engine_endpoint": view.endpoint,
        "lane": view.lane,
        "state": view.state,
        "terminal": view.terminal,
        "owner": view.owner,
        "batch_id": None if task is None or task.group is None else to_text(task.group),
        "task_id": None if task is None else job.uuid.hex,
        "attempts": view.attempts,
        "failures": view.failures,
        "failures_max": view.failures_max,
        "crashes": view.crashes,
        "interruptions": view.interruptions,
        "unreachables": view.unreachables,
        "progress": _progress(view),
        "error": _error(view),
        "idempotency_key": shown_key(view.idempotency_key),
        "request_id": view.request_id,
        "trace_id": job.trace_id,
        "execution_id": view.execution_id,
        "created_at": view.created_at,
        "run_at": view.run_at,
        "dispatched_at": view.dispatched_at,
        "started_at": view.started_at,
        "finished_at": view.finished_at,
        "updated_at": view.updated_at,
        # A task is deleted with its batch, whose expiry is not known here.
        "expires_at": None if task is not None else view.expires_at,
        "start_deadline": view.start_deadline,
        "input_kept": job.input_kept,
        "retry_of": None if job.retry_of is None else to_text(job.retry_of),
        "retried_as": None if job.retried_as is None else to_text(job.retried_as),
        "result_bytes": job.view.result_bytes,
        "urls": _urls(job, adapter, adapter.paths(job)),
    }


def _urls(job: OrgJob, adapter: JobAdapter, places: JobPaths) -> schemas.OrgJobUrls:
    own = job_url(job.view.org, job.id)
    can_retry = job.is_unsuccessful and job.input_kept and adapter.refusal(job) is None
    return schemas.OrgJobUrls(
        self=own,
        surface=places.job,
        events=f"{own}/events",
        log=f"{own}/log",
        timeline=f"{own}/timeline",
        explain=f"{own}/explain",
        cancel=f"{own}/cancel",
        retry=f"{own}/retry" if can_retry else None,
        input=f"{own}/input" if job.input_kept else None,
        artifacts=f"{own}/artifacts",
        receipt=places.receipt,
        batch=places.batch,
    )


def _progress(view: JobView) -> schemas.JobProgress | None:
    if view.progress is None:
        return None
    return schemas.JobProgress(round(view.progress, 6), view.progress_note)


def _error(view: JobView) -> schemas.OrgJobError | None:
    if view.error_code is None:
        return None
    return schemas.OrgJobError.of(view.error_code, view.error_message)
