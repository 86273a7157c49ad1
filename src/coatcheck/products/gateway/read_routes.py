"""Collecting: one job, many jobs, a job's events; and asking for a job's end."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.domain.artifacts import ArtifactRecord
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.errors import InvalidParameter, NotFound, Unauthenticated
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
    may_see,
)
from coatcheck.http.parameters import read_choice, read_list, read_whole_number
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, StreamResponse, json_response
from coatcheck.http.routing import ULID, Access, Parameter, ResponseSpec, Route
from coatcheck.products.gateway import schemas
from coatcheck.products.gateway.context import GatewayContext, is_name
from coatcheck.products.gateway.naming import name_of
from coatcheck.products.gateway.submit_routes import BASE


class GatewayFinder:
    """The job that a path names, by organisation, service and id."""

    def __init__(self, context: GatewayContext) -> None:
        self._context = context

    async def job(self, request: Request, scope: Scope) -> ArtifactOwner:
        view = await self._context.job(request, scope)
        voice = await self._context.presenter(view.org, request.params["service"])
        return ArtifactOwner.of(view, voice.urls(view.id).poll)

    async def record(self, request: Request, name: str) -> ArtifactRecord | None:
        """Open to whom the job was. As with jobs, a caller without a credential learns of nothing
        but what is open to anyone."""
        principal = await self._context.let_in(request, Scope.READ)
        record = await self._find(request, name)
        if record is not None and may_see(principal, record, request.params["org"]):
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
        named = None if record is None else name_of(record)
        return record if named is not None and named.service == request.params["service"] else None


def file_routes(server: ServerContext, context: GatewayContext) -> list[Route]:
    return artifact_routes(
        server,
        GatewayFinder(context),
        path=BASE + "/jobs/{id}",
        name="job",
        tag="gateway",
        handler_lets_in=True,
    )


HOSTED: Final = "/api/v1/orgs/{org}/workspaces/{ws}/hosted-services/{service}"
PAGE_ROWS: Final = 50
PAGE_ROWS_MAX: Final = 200
OFFSET_MAX: Final = 10_000
BATCH_IDS_MAX: Final = 200


class GatewayReadRoutes:
    """The routes that show jobs."""

    def __init__(self, context: GatewayContext) -> None:
        self._context = context

    async def status(self, request: Request) -> Response | StreamResponse:
        view = await self._context.job(request, Scope.READ)
        voice = await self._context.presenter(view.org, request.params["service"])
        return await self._context.responses.status(request, view, voice)

    async def events(self, request: Request) -> StreamResponse:
        view = await self._context.job(request, Scope.READ)
        voice = await self._context.presenter(view.org, request.params["service"])
        return await self._context.responses.events(request, view, voice)

    async def explain(self, request: Request) -> Response:
        return await self._context.responses.explained(
            request, await self._context.job(request, Scope.READ)
        )

    async def cancel(self, request: Request) -> Response:
        view = await self._context.job(request, Scope.SUBMIT)
        voice = await self._context.presenter(view.org, request.params["service"])
        return await self._context.responses.cancel(
            view, voice, elsewhere=self._context.remote_calls.cancel
        )

    async def page(self, request: Request) -> Response:
        """Jobs of a service: all of them for an admin, else the caller's own."""
        context, query, principal = self._context, request.query, request.principal
        org, name = principal.org, request.params["service"]
        offset = read_whole_number(query, "offset", 0, OFFSET_MAX, default=0)
        limit = read_whole_number(query, "limit", 1, PAGE_ROWS_MAX, default=PAGE_ROWS)
        status = read_choice(query, "status", list(schemas.STATES))
        lane = read_choice(query, "lane", [lane.value for lane in Lane])
        after = _cursor(query.get("cursor"))
        service = await context.service(org, name)
        if service is None or service.workspace != request.params["ws"]:
            raise NotFound
        voice = await context.presenter(org, name)
        upstream = service.source == "http"
        page = await context.engine.page(
            org=org,
            endpoints=[UPSTREAM_ENDPOINT]
            if upstream
            else [spec.engine_endpoint for spec in service.endpoints],
            queue_key_prefix=f"{name}." if upstream else None,
            states=None if status is None else schemas.STATES[status],
            lane=None if lane is None else Lane(lane),
            owner=None if Scope.ADMIN in principal.scopes else principal.owner,
            offset=offset,
            limit=limit,
            after=after,
        )
        items = [await voice.job(view) for view in page.items]
        following = items[-1].id if len(items) == limit else None
        return json_response(
            schemas.GatewayJobPage(items, page.total, page.total_is_exact, following)
        )

    async def batch_status(self, request: Request) -> Response:
        """Many jobs at once, in the order asked for."""
        context, principal = self._context, request.principal
        org, name = principal.org, request.params["service"]
        ids = read_list(request.query, "job_ids", BATCH_IDS_MAX)
        service = await context.service(org, name)
        # One that was taken away has jobs still, and no workspace.
        if service is not None and service.workspace != request.params["ws"]:
            raise NotFound
        voice = await context.presenter(org, name)
        items: list[schemas.GatewayJob] = []
        not_found: list[str] = []
        for job_id, view in zip(ids, await context.engine.get_many(ids, org=org), strict=True):
            named = None if view is None else name_of(view)
            if (
                view is None
                or named is None
                or named.service != name
                or not may_see(principal, view, org)
            ):
                not_found.append(job_id)
            else:
                items.append(await voice.job(view))
        return json_response(schemas.GatewayJobStatuses(items, not_found))


def _cursor(given: str | None) -> str | None:
    if given is None:
        return None
    try:
        from_text(given)
    except InvalidId as error:
        raise InvalidParameter("cursor", "must be the `next` of a page") from error
    return given


def routes(context: GatewayContext) -> list[Route]:
    """The routes by which jobs are read and cancelled."""
    reading = GatewayReadRoutes(context)
    job_path = BASE + "/jobs/{id}"
    return [
        Route(
            methods=["GET"],
            path=job_path,
            name="job",
            summary="A job as it is, or once it has ended.",
            handler=reading.status,
            access=Access.HANDLER,
            parameters=[*WAIT_PARAMETERS, *CONDITION_PARAMETERS],
            responses=[
                ResponseSpec(HTTPStatus.OK, "The job.", schemas.GatewayJob, headers=_JOB_HEADERS),
                ResponseSpec(
                    HTTPStatus.ACCEPTED,
                    "The job has not ended within the time to wait.",
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
            summary="A job's states, progress, log lines and output, as Server-Sent Events.",
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
            summary="Ask for a job's end.",
            description="What a remote does for the job is cancelled there, too, if it can be.",
            handler=reading.cancel,
            access=Access.HANDLER,
            responses=[
                ResponseSpec(HTTPStatus.OK, "It is cancelled.", schemas.GatewayJob),
                ResponseSpec(
                    HTTPStatus.ACCEPTED, "It runs, and was told to stop.", schemas.GatewayJob
                ),
                ResponseSpec(HTTPStatus.CONFLICT, "It has already ended.", Problem, MEDIA_TYPE),
            ],
            tag="gateway",
        ),
        Route(
            methods=["GET"],
            path=HOSTED + "/jobs",
            name="jobs",
            summary="Jobs of a service, newest first.",
            description="An admin sees all of the organisation's; others see their own.",
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
            summary="Many jobs in one request.",
            handler=reading.batch_status,
            access=Scope.READ,
            operable=True,
            parameters=[
                Parameter(
                    "job_ids",
                    "query",
                    f"Ids with commas between, at most {BATCH_IDS_MAX}.",
                    {"type": "string", "pattern": "[^,]"},
                    required=True,
                )
            ],
            responses=[
                ResponseSpec(HTTPStatus.OK, "Those that were found.", schemas.GatewayJobStatuses)
            ],
            tag="gateway",
        ),
    ]


_JOB_HEADERS: Final = RETRY_AFTER_HEADER | {
    "ETag": "Changes with every state.",
    "Preference-Applied": "What was made of `Prefer`.",
}
_PAGE_PARAMETERS: Final = (
    Parameter(
        "offset",
        "query",
        "How many to pass over. For a long way use `cursor`.",
        {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX},
    ),
    Parameter(
        "limit",
        "query",
        "How many to show.",
        {"type": "integer", "minimum": 1, "maximum": PAGE_ROWS_MAX, "default": PAGE_ROWS},
    ),
    Parameter(
        "status",
        "query",
        "Only jobs of this status.",
        {"type": "string", "enum": list(schemas.STATES)},
    ),
    Parameter(
        "lane",
        "query",
        "Only jobs of this lane.",
        {"type": "string", "enum": [lane.value for lane in Lane]},
    ),
    Parameter("cursor", "query", "The `next` of the page before.", ULID),
)
