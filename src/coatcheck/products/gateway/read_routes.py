"""Routes that read and cancel jobs: one job, many jobs, a job's events and artifacts."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.domain.artifacts import ArtifactRecord
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.errors import NotFound, Unauthenticated
from coatcheck.domain.ids import InvalidId, from_text
from coatcheck.domain.lanes import Lane
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
from coatcheck.http.pages import LIMIT, cursor_parameter, read_page
from coatcheck.http.parameters import read_choice, read_list, read_whole_number
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import Access, Parameter, ResponseSpec, Route
from coatcheck.products.gateway import schemas
from coatcheck.products.gateway.context import GatewayContext, is_name, may_see
from coatcheck.products.gateway.naming import endpoint_ref
from coatcheck.products.gateway.submit_routes import BASE


class GatewayFinder:
    """Finds the job that a path names, by organisation, service and id."""

    def __init__(self, context: GatewayContext) -> None:
        self._context = context

    async def job(self, request: Request, scope: Scope) -> ArtifactOwner:
        view = await self._context.job(request, scope)
        presenter = await self._context.presenter(view.org, request.params["service"])
        return ArtifactOwner.of(view, presenter.urls(view.id).poll)

    async def record(self, request: Request, name: str) -> ArtifactRecord | None:
        """The record of an artifact, for callers who could see its job.

        As with jobs, a caller without a credential sees only artifacts that are open to anyone.
        """
        principal = await self._context.authenticate(request, Scope.READ)
        record = await self._find(request, name)
        if record is not None and may_see(principal, record.owner, request.params["org"]):
            return record
        if principal is None:
            raise Unauthenticated
        return None

    async def _find(self, request: Request, name: str) -> ArtifactRecord | None:
        org = request.params["org"]
        try:
            job = from_text(request.params["id"])
        except InvalidId:
            return None
        if not is_name(org):
            return None
        record = await self._context.engine.artifact_repository.record(org, job, name)
        ref = None if record is None else endpoint_ref(record)
        return record if ref is not None and ref.service == request.params["service"] else None


def file_routes(server: ServerContext, context: GatewayContext) -> list[Route]:
    return artifact_routes(
        server,
        GatewayFinder(context),
        path=BASE + "/jobs/{id}",
        name="job",
        tag="gateway",
        handler_authorizes=True,
    )


HOSTED: Final = "/api/v1/orgs/{org}/workspaces/{ws}/hosted-services/{service}"
OFFSET_MAX: Final = 10_000
BATCH_IDS_MAX: Final = 200


class GatewayReadRoutes:
    """The routes that show jobs."""

    def __init__(self, context: GatewayContext) -> None:
        self._context = context

    async def status(self, request: Request) -> Response | StreamResponse:
        view = await self._context.job(request, Scope.READ)
        presenter = await self._context.presenter(view.org, request.params["service"])
        return await self._context.responses.status(request, view, presenter)

    async def events(self, request: Request) -> StreamResponse:
        view = await self._context.job(request, Scope.READ)
        presenter = await self._context.presenter(view.org, request.params["service"])
        return await self._context.responses.events(request, view, presenter)

    async def explain(self, request: Request) -> Response:
        return await self._context.responses.explained(
            request, await self._context.job(request, Scope.READ)
        )

    async def cancel(self, request: Request) -> Response:
        view = await self._context.job(request, Scope.SUBMIT)
        presenter = await self._context.presenter(view.org, request.params["service"])
        return await self._context.responses.cancel(
            view, presenter, cancel_remote=self._context.remote_calls.cancel
        )

    async def page(self, request: Request) -> Response:
        """Jobs of a service: all of them for an admin, the caller's own for others."""
        context, query, principal = self._context, request.query, request.principal
        org, name = principal.org, request.params["service"]
        offset = read_whole_number(query, "offset", 0, OFFSET_MAX, default=0)
        asked = read_page(request)
        status = read_choice(query, "status", list(schemas.STATES))
        lane = read_choice(query, "lane", [lane.value for lane in Lane])
        service = await context.service(org, name)
        if service is None or service.workspace != request.params["ws"]:
            raise NotFound
        presenter = await context.presenter(org, name)
        upstream = service.source == "http"
        page = await context.engine.page(
            org=org,
            endpoints=[UPSTREAM_ENDPOINT]
            if upstream
            else [spec.engine_endpoint for spec in service.endpoints],
            queue_key_prefix=f"{name}." if upstream else None,
            states=None if status is None else schemas.STATES[status],
            lane=None if lane is None else Lane(lane),
            owner=principal.lists_jobs_of,
            offset=offset,
            limit=asked.limit,
            after=asked.after_id,
        )
        items = [await presenter.job(view) for view in page.items]
        following = asked.following(items, lambda item: item.id)
        return json_response(
            schemas.GatewayJobPage(items, page.total, page.total_is_exact, following)
        )

    async def batch_status(self, request: Request) -> Response:
        """Many jobs at once, in the requested order."""
        context, principal = self._context, request.principal
        org, name = principal.org, request.params["service"]
        ids = read_list(request.query, "job_ids", BATCH_IDS_MAX)
        service = await context.service(org, name)
        # A deleted service still has jobs, and no workspace.
        if service is not None and service.workspace != request.params["ws"]:
            raise NotFound
        presenter = await context.presenter(org, name)
        items: list[schemas.GatewayJob] = []
        not_found: list[str] = []
        for job_id, view in zip(ids, await context.engine.get_many(ids, org=org), strict=True):
            ref = None if view is None else endpoint_ref(view)
            if (
                view is None
                or ref is None
                or ref.service != name
                or not may_see(principal, view.owner, org)
            ):
                not_found.append(job_id)
            else:
                items.append(await presenter.job(view))
        return json_response(schemas.GatewayJobStatuses(items, not_found))


def routes(context: GatewayContext) -> list[Route]:
    """The routes that read and cancel jobs."""
    reading = GatewayReadRoutes(context)
    job_path = BASE + "/jobs/{id}"
    return [
        Route(
            methods=["GET"],
            path=job_path,
            name="job",
            summary="Read a job, or wait for its end.",
            handler=reading.status,
            access=Access.HANDLER,
            parameters=[*WAIT_PARAMETERS, *CONDITION_PARAMETERS],
            responses=[
                ResponseSpec(HTTPStatus.OK, "The job.", schemas.GatewayJob, headers=_JOB_HEADERS),
                ResponseSpec(
                    HTTPStatus.ACCEPTED,
                    "The job did not end within the requested wait.",
                    schemas.GatewayJob,
                    headers=_JOB_HEADERS,
                ),
                NOT_MODIFIED,
            ],
            tag="gateway",
        ),
        Route(
            methods=["GET"],
            path=job_path + "/events",
            name="job_events",
            summary="Stream a job's states, progress, log lines and output as Server-Sent Events.",
            handler=reading.events,
            access=Access.HANDLER,
            parameters=RESUME_PARAMETERS,
            responses=[EVENTS],
            tag="gateway",
        ),
        explain_route(
            job_path, "explain_job", reading.explain, tag="gateway", access=Access.HANDLER
        ),
        Route(
            methods=["POST"],
            path=job_path + "/cancel",
            name="cancel",
            summary="Cancel a job.",
            description="Work that a remote does for the job is cancelled there as well, if the "
            "remote can do that.",
            handler=reading.cancel,
            access=Access.HANDLER,
            responses=[
                ResponseSpec(HTTPStatus.OK, "The job is cancelled.", schemas.GatewayJob),
                ResponseSpec(
                    HTTPStatus.ACCEPTED,
                    "The job is running and was asked to stop.",
                    schemas.GatewayJob,
                ),
                ResponseSpec(
                    HTTPStatus.CONFLICT, "The job has already ended.", Problem, MEDIA_TYPE
                ),
            ],
            tag="gateway",
        ),
        Route(
            methods=["GET"],
            path=HOSTED + "/jobs",
            name="jobs",
            summary="List the jobs of a service, newest first.",
            description="An admin sees all jobs of the organisation; others see their own.",
            handler=reading.page,
            access=Scope.READ,
            operable=True,
            parameters=_PAGE_PARAMETERS,
            responses=[ResponseSpec(HTTPStatus.OK, "A page of jobs.", schemas.GatewayJobPage)],
            tag="gateway",
        ),
        Route(
            methods=["GET"],
            path=HOSTED + "/jobs/batch-status",
            name="batch_status",
            summary="Read many jobs in one request.",
            handler=reading.batch_status,
            access=Scope.READ,
            operable=True,
            parameters=[
                Parameter(
                    "job_ids",
                    "query",
                    f"Job ids, separated by commas, at most {BATCH_IDS_MAX}.",
                    {"type": "string", "pattern": "[^,]"},
                    required=True,
                )
            ],
            responses=[
                ResponseSpec(HTTPStatus.OK, "The jobs that were found.", schemas.GatewayJobStatuses)
            ],
            tag="gateway",
        ),
    ]


_JOB_HEADERS: Final = RETRY_AFTER_HEADER | {
    "ETag": "Changes with every state.",
    "Preference-Applied": "The preferences of `Prefer` that were applied.",
}
_PAGE_PARAMETERS: Final = (
    Parameter(
        "offset",
        "query",
        "The number of jobs to skip. To go far, use `cursor`.",
        {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX},
    ),
    LIMIT,
    Parameter(
        "status",
        "query",
        "Only jobs with this status.",
        {"type": "string", "enum": list(schemas.STATES)},
    ),
    Parameter(
        "lane",
        "query",
        "Only jobs of this lane.",
        {"type": "string", "enum": [lane.value for lane in Lane]},
    ),
    cursor_parameter(),
)
