"""All jobs of an organisation: how one is found, read and shown, whichever product it is of."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final
from uuid import UUID

from coatcheck.core.org_jobs import INPUT_GONE, OrgJobRepository
from coatcheck.domain.artifacts import ArtifactRecord
from coatcheck.domain.errors import InputNotKept, JobNotFound
from coatcheck.domain.job import JobView
from coatcheck.domain.org_jobs import LogEntry, OrgJob
from coatcheck.domain.tenants import Principal, Scope
from coatcheck.http import parameters
from coatcheck.http.artifacts import ArtifactOwner
from coatcheck.http.context import ServerContext
from coatcheck.http.job_adapters import read_job_id
from coatcheck.http.job_resource import JobResource
from coatcheck.http.pages import limit_parameter, read_limit
from coatcheck.http.parameters import read_whole_number
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import JSON, Response, json_response
from coatcheck.http.routing import Parameter, ResponseSpec, Route
from coatcheck.products.console import schemas
from coatcheck.products.console.presenter import ConsolePresenter, job_url, timeline

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
        own = [
            Route(
                methods=("GET",),
                path=f"{JOB}/timeline",
                name="org_job_timeline",
                summary="Read a job's timeline: what happened to it, in order.",
                description="Covers its first hundred attempts, including those that did not "
                "complete.",
                handler=self.timeline,
                access=Scope.READ,
                operable=True,
                tag=self.product,
                parameters=(JOB_ID,),
                responses=(ResponseSpec(HTTPStatus.OK, "The timeline.", schemas.Timeline),),
            ),
            Route(
                methods=("GET",),
                path=f"{JOB}/log",
                name="org_job_log",
                summary="Read a job's log: log lines, alerts, and failed attempts.",
                description="A page scans at most 5,000 events, output included: it may be short, "
                "or empty, and still have a `next`.",
                handler=self.log,
                access=Scope.READ,
                operable=True,
                tag=self.product,
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
                description="The input is kept until the job has ended; if it failed or was "
                "cancelled, until the job expires, unless its endpoint says otherwise "
                "(`keep_input`).",
                handler=self.shown_input,
                access=Scope.READ,
                operable=True,
                tag=self.product,
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
