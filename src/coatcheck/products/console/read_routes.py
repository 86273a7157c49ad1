"""Routes that read one job: its state, events, timeline, log, input and artifacts."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from coatcheck.core.org_jobs import INPUT_GONE, OrgJobRepository
from coatcheck.domain.artifacts import ArtifactRecord
from coatcheck.domain.errors import InputNotKept
from coatcheck.domain.org_jobs import LogEntry
from coatcheck.domain.tenants import Scope
from coatcheck.http.artifacts import ArtifactOwner, artifact_routes
from coatcheck.http.context import ServerContext
from coatcheck.http.explanations import explain_route
from coatcheck.http.job_responses import (
    CONDITION_PARAMETERS,
    EVENTS,
    NOT_MODIFIED,
    RESUME_PARAMETERS,
    RETRY_AFTER_HEADER,
    WAIT_PARAMETERS,
)
from coatcheck.http.pages import limit_parameter, read_limit
from coatcheck.http.parameters import read_whole_number
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import JSON, Response, StreamResponse, json_response
from coatcheck.http.routing import Parameter, ResponseSpec, Route
from coatcheck.products.console import schemas
from coatcheck.products.console.context import JOB, TAG, ConsoleContext, read_id
from coatcheck.products.console.presenter import job_url, timeline

_NAME: Final = "org_job"
_SERVED: Final = (f"{_NAME}_artifacts", f"{_NAME}_artifact", f"{_NAME}_artifact_receipt")


class JobFiles:
    """Finds the job and the artifact that a path names."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    async def job(self, request: Request, _: Scope) -> ArtifactOwner:
        job = await self._context.job(request)
        view = job.view
        return ArtifactOwner(
            org=view.org,
            job=job.uuid,
            url=job_url(view.org, job.id),
            terminal=view.terminal,
            # A task's artifacts are deleted with its batch.
            expires_at=view.expires_at if job.task is None else None,
            shows=self._context.adapters.of(job).shows_artifacts(job),
        )

    async def record(self, request: Request, name: str) -> ArtifactRecord | None:
        """The record of an artifact. It has its own owner, because the job may be deleted."""
        principal, job = request.principal, read_id(request.params["id"])
        record = await self._context.engine.artifact_repository.record(principal.org, job, name)
        if record is None or not principal.may_see(record.owner, admins_see_all=True):
            return None
        return record


def file_routes(server: ServerContext, context: ConsoleContext) -> list[Route]:
    every = artifact_routes(
        server, JobFiles(context), path=JOB, name=_NAME, tag=TAG, parameters=(JOB_ID,)
    )
    return [replace(each, operable=True) for each in every if each.name in _SERVED]


LOG_ROWS: Final = 100
LOG_ROWS_MAX: Final = 1_000
_SEQ_MAX: Final = 10**18 - 1


class OrgJobReadRoutes:
    """The routes that show a job."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    async def status(self, request: Request) -> Response | StreamResponse:
        context = self._context
        return await context.responses.status(
            request, (await context.job(request)).view, context.presenter
        )

    async def events(self, request: Request) -> StreamResponse:
        context = self._context
        return await context.responses.events(
            request, (await context.job(request)).view, context.presenter
        )

    async def explain(self, request: Request) -> Response:
        context = self._context
        return await context.responses.explained(request, (await context.job(request)).view)

    async def timeline(self, request: Request) -> Response:
        job = await self._context.job(request)
        attempts, spawned_at = await self._context.engine.extension(OrgJobRepository).attempts(
            job.view.org, job.uuid
        )
        return json_response(schemas.Timeline(timeline(job, attempts, spawned_at)))

    async def log(self, request: Request) -> Response:
        after = read_whole_number(request.query, "after", 0, _SEQ_MAX, default=0)
        limit = read_limit(request.query, default=LOG_ROWS, most=LOG_ROWS_MAX)
        job = await self._context.job(request)
        entries, following = await self._context.engine.extension(OrgJobRepository).log(
            job.view.org, job.uuid, after=after, limit=limit
        )
        return json_response(schemas.LogPage([_shown(entry) for entry in entries], following))

    async def input(self, request: Request) -> Response:
        """The input that the caller submitted, without other parts of the payload, such as a
        target's secrets."""
        job = await self._context.job(request)
        if not job.input_kept:
            raise InputNotKept(INPUT_GONE)
        given = await self._context.adapters.of(job).input(job)
        return Response(HTTPStatus.OK, given, [JSON, (b"cache-control", b"no-store")])


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


JOB_ID: Final = Parameter(
    "id",
    "path",
    "The job's id; for a task, also the 32 hexadecimal digits that its batch shows.",
    {"type": "string", "pattern": "^([0-7][0-9A-HJKMNP-TV-Z]{25}|[0-9a-f]{32})$"},
)
_HEADERS: Final = RETRY_AFTER_HEADER | {
    "ETag": "Changes with every state.",
    "Preference-Applied": "The preferences of `Prefer` that were applied.",
}


def routes(context: ConsoleContext) -> list[Route]:
    reading = OrgJobReadRoutes(context)
    return [
        explain_route(
            JOB,
            "explain_org_job",
            reading.explain,
            tag=TAG,
            parameters=(JOB_ID,),
            operable=True,
        ),
        Route(
            methods=("GET",),
            path=JOB,
            name="org_job",
            summary="Read a job, or wait for its end.",
            handler=reading.status,
            access=Scope.READ,
            operable=True,
            tag=TAG,
            parameters=(JOB_ID, *WAIT_PARAMETERS, *CONDITION_PARAMETERS),
            responses=(
                ResponseSpec(HTTPStatus.OK, "The job.", schemas.OrgJobBody, headers=_HEADERS),
                ResponseSpec(
                    HTTPStatus.ACCEPTED,
                    "The job did not end within the requested wait.",
                    schemas.OrgJobBody,
                    headers=_HEADERS,
                ),
                NOT_MODIFIED,
            ),
        ),
        Route(
            methods=("GET",),
            path=f"{JOB}/events",
            name="org_job_events",
            summary="Stream a job's states, progress, log lines and output as Server-Sent Events.",
            handler=reading.events,
            access=Scope.READ,
            operable=True,
            tag=TAG,
            parameters=(JOB_ID, *RESUME_PARAMETERS),
            responses=(EVENTS,),
        ),
        Route(
            methods=("GET",),
            path=f"{JOB}/timeline",
            name="org_job_timeline",
            summary="Read a job's timeline: what happened to it, in order.",
            description="Covers its first hundred attempts, including those that did not complete.",
            handler=reading.timeline,
            access=Scope.READ,
            operable=True,
            tag=TAG,
            parameters=(JOB_ID,),
            responses=(ResponseSpec(HTTPStatus.OK, "The timeline.", schemas.Timeline),),
        ),
        Route(
            methods=("GET",),
            path=f"{JOB}/log",
            name="org_job_log",
            summary="Read a job's log: log lines, alerts, and failed attempts.",
            description="A page scans at most 5,000 events, output included: it may be short, or "
            "empty, and still have a `next`.",
            handler=reading.log,
            access=Scope.READ,
            operable=True,
            tag=TAG,
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
        Route(
            methods=("GET",),
            path=f"{JOB}/input",
            name="org_job_input",
            summary="Read a job's input, while it is kept.",
            description="The input is kept until the job has ended; if it failed or was cancelled, "
            "until the job expires, unless its endpoint says otherwise (`keep_input`).",
            handler=reading.input,
            access=Scope.READ,
            operable=True,
            tag=TAG,
            parameters=(JOB_ID,),
            responses=(
                ResponseSpec(HTTPStatus.OK, "The input, as JSON.", schema={}),
                ResponseSpec(
                    HTTPStatus.CONFLICT,
                    "The input was deleted: `input_not_kept`.",
                    Problem,
                    MEDIA_TYPE,
                ),
            ),
        ),
    ]
