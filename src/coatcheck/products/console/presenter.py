"""Shows jobs as the console does."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import msgspec

from coatcheck.core import Engine
from coatcheck.core.org_jobs import Console
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.org_jobs import ConsoleJob
from coatcheck.http.idempotency import shown_key
from coatcheck.http.job_adapters import JobDesk, JobPlaces
from coatcheck.products.console import schemas as words
from coatcheck.products.console.adapters import JobDesks

_NO_RESULT: Final = msgspec.Raw(b"null")


class ConsoleVoice:
    """What jobs look like to who looks after them: a ``JobShow`` of ``control/job_answers``."""

    shows_long_results = False

    def __init__(self, engine: Engine, desks: JobDesks) -> None:
        self._engine = engine
        self._desks = desks

    async def job(self, view: JobView) -> words.WholeOrgJob:
        """The job as it is now, with its result."""
        return await self.whole(await self._engine.extension(Console).get(view.org, view.uuid))

    async def whole(self, job: ConsoleJob) -> words.WholeOrgJob:
        desk = self._desks.of(job)
        result = desk.result(job)
        return words.WholeOrgJob(
            **await _fields(job, desk),
            result=_NO_RESULT if result is None else msgspec.Raw(result),
            result_truncated=result is None and job.view.result_bytes is not None,
        )

    async def item(self, job: ConsoleJob) -> words.OrgJob:
        """The job, in a list."""
        return words.OrgJob(**await _fields(job, self._desks.of(job)))


def job_url(org: str, job_id: str) -> str:
    """Where the console shows a job."""
    return f"/api/v1/orgs/{quote(org, safe='')}/jobs/{job_id}"


async def _fields(job: ConsoleJob, desk: JobDesk) -> dict[str, Any]:
    view, task = job.view, job.task
    service, endpoint = await desk.label(job)
    return {
        "id": job.id,
        "org_id": view.org,
        "surface": desk.surface,
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
        # A task goes with its batch, whose time is not known here.
        "expires_at": None if task is not None else view.expires_at,
        "start_deadline": view.start_deadline,
        "input_kept": job.input_kept,
        "retry_of": None if job.retry_of is None else to_text(job.retry_of),
        "retried_as": None if job.retried_as is None else to_text(job.retried_as),
        "result_bytes": job.view.result_bytes,
        "urls": _urls(job, desk, desk.places(job)),
    }


def _urls(job: ConsoleJob, desk: JobDesk, places: JobPlaces) -> words.OrgJobUrls:
    own = job_url(job.view.org, job.id)
    can_retry = job.has_come_to_nothing and job.input_kept and desk.refusal(job) is None
    return words.OrgJobUrls(
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


def _progress(view: JobView) -> words.JobProgress | None:
    if view.progress is None:
        return None
    return words.JobProgress(round(view.progress, 6), view.progress_note)


def _error(view: JobView) -> words.JobError | None:
    if view.error_code is None:
        return None
    return words.JobError(view.error_code, view.error_message or "")
