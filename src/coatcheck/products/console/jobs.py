"""All jobs of an organisation: how one is found, read and shown, whichever product it is of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import msgspec

from coatcheck.core.org_jobs import INPUT_GONE, OrgJobRepository
from coatcheck.domain.artifacts import ArtifactRecord
from coatcheck.domain.errors import InputNotKept, JobNotFound
from coatcheck.domain.ids import to_text
from coatcheck.domain.job import JobView
from coatcheck.domain.org_jobs import Attempt, LogEntry, OrgJob
from coatcheck.domain.states import State
from coatcheck.domain.tenants import Principal, Scope
from coatcheck.http import parameters
from coatcheck.http.artifacts import ArtifactOwner
from coatcheck.http.context import ServerContext
from coatcheck.http.job_adapters import JobAdapter, JobAdapters, JobPaths, read_job_id
from coatcheck.http.job_resource import JobResource
from coatcheck.http.pages import limit_parameter, read_limit
from coatcheck.http.parameters import read_whole_number, shown_key
from coatcheck.http.request import Request
from coatcheck.http.response import JSON, Response, json_response
from coatcheck.http.routing import Parameter, ResponseSpec, Route
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
        attempt.ended_at, _OUTCOMES[attempt.outcome], state, number, attempt.code, attempt.message
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


JOBS: Final = "/api/v1/orgs/{org}/jobs"
JOB: Final = f"{JOBS}/{{id}}"
TAG: Final = "console"
LOG_ROWS: Final = 100
LOG_ROWS_MAX: Final = 1_000
_SEQ_MAX: Final = 10**18 - 1
_RETRY: Final = "retry"
"""Names the idempotency keys of retries, as the name of a product does for others."""
JOB_ID: Final = Parameter(
    "id",
    "path",
    "The job's id; for a task, also the 32 hexadecimal digits that its batch shows.",
    {"type": "string", "pattern": "^([0-7][0-9A-HJKMNP-TV-Z]{25}|[0-9a-f]{32})$"},
)


class OrgJobs(JobResource):
    """The jobs of all products. An admin sees all; others see their own and those open to
    anyone."""

    product = TAG
    name = "org_job"
    path = JOB
    path_parameters = (JOB_ID,)
    body = schemas.OrgJobBody
    admins_see_all = True
    cancel_description = (
        "Work that a remote does for the job is cancelled there as well, if the remote can do that."
    )

    def __init__(self, server: ServerContext) -> None:
        super().__init__(server)
        self.adapters = server.adapters
        self.presenter = ConsolePresenter(server.adapters)

    @property
    def repository(self) -> OrgJobRepository:
        return self.engine.extension(OrgJobRepository)

    # Finding and showing

    async def find(self, request: Request, _: Scope) -> JobView:
        return (await self.job_of(request)).view

    async def job_of(self, request: Request) -> OrgJob:
        """The job that the path names, if the caller may see it."""
        return await self.find_id(request.principal, request.params["id"])

    async def find_id(self, principal: Principal, job_id: str) -> OrgJob:
        """A job by its id, in the format of jobs or of tasks. Raises JobNotFound, also for a job
        that the caller may not see."""
        job = await self.repository.get(principal.org, read_id(job_id))
        if not self.is_seen(principal, job.view.owner):
            raise JobNotFound("there is no such job")
        return job

    async def show(self, view: JobView) -> schemas.OrgJobBody:
        return await self.presenter.whole(await self.repository.get(view.org, view.uuid))

    async def cancel(self, view: JobView) -> JobView:
        job = await self.repository.get(view.org, view.uuid)
        return await self.adapters.of(job).cancel(view)

    def retry_key(self, principal: Principal, key: str) -> str:
        """The idempotency key of a retry as it is stored: every caller has their own keys."""
        return parameters.stored_key(_RETRY, principal, key)

    # Its files

    async def job(self, request: Request, _: Scope) -> ArtifactOwner:
        job = await self.job_of(request)
        view = job.view
        return ArtifactOwner(
            org=view.org,
            job=job.uuid,
            url=job_url(view.org, job.id),
            terminal=view.terminal,
            # A task's artifacts are deleted with its batch.
            expires_at=view.expires_at if job.task is None else None,
            shows=self.adapters.of(job).shows_artifacts(job),
        )

    async def record(self, request: Request, name: str) -> ArtifactRecord | None:
        """The record of an artifact. It has its own owner, because the job may be deleted."""
        principal, job = request.principal, read_id(request.params["id"])
        record = await self.engine.artifact_repository.record(principal.org, job, name)
        return record if record is not None and self.is_seen(principal, record.owner) else None

    # What only the console shows

    async def timeline(self, request: Request) -> Response:
        job = await self.job_of(request)
        attempts, spawned_at = await self.repository.attempts(job.view.org, job.uuid)
        return json_response(schemas.Timeline(timeline(job, attempts, spawned_at)))

    async def log(self, request: Request) -> Response:
        after = read_whole_number(request.query, "after", 0, _SEQ_MAX, default=0)
        limit = read_limit(request.query, default=LOG_ROWS, most=LOG_ROWS_MAX)
        job = await self.job_of(request)
        entries, following = await self.repository.log(
            job.view.org, job.uuid, after=after, limit=limit
        )
        return json_response(schemas.LogPage([_shown(entry) for entry in entries], following))

    async def shown_input(self, request: Request) -> Response:
        """The input that the caller submitted, without other parts of the payload, such as a
        target's secrets."""
        job = await self.job_of(request)
        if not job.input_kept:
            raise InputNotKept(INPUT_GONE)
        given = await self.adapters.of(job).input(job)
        return Response(HTTPStatus.OK, given, [JSON, (b"cache-control", b"no-store")])

    def routes(self) -> list[Route]:
        """The routes of one job. Its files are deleted where its product shows them."""
        route = partial(Route, access=Scope.READ, operable=True, tag=self.product)
        own = [
            route(
                methods=("GET",),
                path=f"{JOB}/timeline",
                name="org_job_timeline",
                summary="Read a job's timeline: what happened to it, in order.",
                description="Covers its first hundred attempts, including those that did not "
                "complete.",
                handler=self.timeline,
                parameters=(JOB_ID,),
                responses=(ResponseSpec(HTTPStatus.OK, "The timeline.", schemas.Timeline),),
            ),
            route(
                methods=("GET",),
                path=f"{JOB}/log",
                name="org_job_log",
                summary="Read a job's log: log lines, alerts, and failed attempts.",
                description="A page scans at most 5,000 events, output included: it may be short, "
                "or empty, and still have a `next`.",
                handler=self.log,
                parameters=(
                    JOB_ID,
                    Parameter(
                        "after",
                        "query",
                        "Only items after this `seq`.",
                        {"type": "integer", "minimum": 0, "maximum": _SEQ_MAX},
                    ),
                    limit_parameter(default=LOG_ROWS, most=LOG_ROWS_MAX),
                ),
                responses=(ResponseSpec(HTTPStatus.OK, "A page of the log.", schemas.LogPage),),
            ),
            route(
                methods=("GET",),
                path=f"{JOB}/input",
                name="org_job_input",
                summary="Read a job's input, while it is kept.",
                description="The input is kept until the job has ended; if it failed or was "
                "cancelled, until the job expires, unless its endpoint says otherwise "
                "(`keep_input`).",
                handler=self.shown_input,
                parameters=(JOB_ID,),
                responses=(
                    ResponseSpec(HTTPStatus.OK, "The input, as JSON.", schema={}),
                    ResponseSpec.problem(
                        HTTPStatus.CONFLICT, "The input was deleted: `input_not_kept`."
                    ),
                ),
            ),
        ]
        every = [*super().routes(), *own]
        return [replace(each, operable=True) for each in every if "DELETE" not in each.methods]


def read_id(text: str) -> UUID:
    """Parse a job's id, in the format of jobs or of tasks. Raises JobNotFound."""
    uuid = read_job_id(text)
    if uuid is None:
        raise JobNotFound("there is no such job")
    return uuid


def key_of_filtered(job: OrgJob) -> str:
    """The key for retrying a job that a filter found: the same for every caller."""
    return f"\x1e{_RETRY}:found:{job.uuid.hex}"


def _shown(entry: LogEntry) -> schemas.LogItem:
    rest: dict[str, Any] = dict(entry.data)
    level = rest.pop("level", None) if entry.kind == "log" else None
    message = rest.pop("message", None)
    return schemas.LogItem(
        seq=entry.seq,
        at=entry.at,
        kind=entry.kind,  # type: ignore[arg-type]  # the statement asks for these kinds
        level=level if isinstance(level, str) else None,
        message="" if message is None else str(message),
        data=rest or None,
    )
