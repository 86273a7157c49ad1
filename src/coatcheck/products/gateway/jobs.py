"""The jobs of the gateway: how they are found and shown.

They are the jobs of Python endpoints, of http upstreams and of remotes; for the console and for
webhooks also those that belong to no other product.

The service, version and endpoint of a job are found from the names that it is stored with. Each
endpoint of Python code has its own engine endpoint: ``docs.post__analyze``, and from version 2 on
``docs.v2.post__analyze``. All http upstreams share one engine endpoint, so that no worker needs to
know them; the job's queue key (``flow``) names the endpoint: ``docs.v1.post__analyze``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec

from coatcheck.core.catalogue import UnknownService
from coatcheck.core.upstream_calls import UpstreamCall, decode_call, shown_result
from coatcheck.core.webhook_payloads import expired_job
from coatcheck.domain.artifacts import ArtifactRecord
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT, ServiceSpec
from coatcheck.domain.errors import JobNotFound, NotFound, Unauthenticated
from coatcheck.domain.ids import InvalidId, from_text
from coatcheck.domain.job import JobView
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX
from coatcheck.domain.listing import JobFilter
from coatcheck.domain.org_jobs import OrgJob
from coatcheck.domain.remote_work import decode_work
from coatcheck.domain.states import State
from coatcheck.domain.tenants import ANYONE, Principal, Scope
from coatcheck.domain.webhooks import RESULT_BYTES_MAX, DeliveryEvent
from coatcheck.http.artifacts import ArtifactOwner
from coatcheck.http.context import ServerContext
from coatcheck.http.gate import check_scope
from coatcheck.http.job_adapters import JobLabel, JobPaths
from coatcheck.http.job_resource import JobResource
from coatcheck.http.pages import JOB_PAGE_PARAMETERS, read_job_page
from coatcheck.http.parameters import (
    anonymous_key,
    read_choice,
    read_list,
    read_whole_number,
    shown_key,
)
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import Parameter, ResponseSpec, Route
from coatcheck.http.watching import JobLinks
from coatcheck.products.gateway import schemas

_VERSIONED: Final = re.compile(r"([^.]+)\.(?:v([1-9]\d*)\.)?([^.]+)")


@dataclass(frozen=True, slots=True)
class EndpointRef:
    """The service, version and endpoint that a job is for."""

    service: str
    version: int
    key: str

    @property
    def version_id(self) -> str:
        return f"{self.service}.v{self.version}"

    @property
    def endpoint_id(self) -> str:
        return f"{self.service}.v{self.version}.{self.key}"


class HasEndpoint(Protocol):
    """A job, or the record of a deleted one."""

    @property
    def endpoint(self) -> str: ...

    @property
    def queue_key(self) -> str: ...


def endpoint_ref(job: HasEndpoint) -> EndpointRef | None:
    """The endpoint of a job; None if it is not a gateway job."""
    is_upstream = job.endpoint == UPSTREAM_ENDPOINT
    found = _VERSIONED.fullmatch(job.queue_key if is_upstream else job.endpoint)
    if found is None:
        return None
    service, version, key = found.groups()
    return EndpointRef(service, int(version or 1), key)


BASE: Final = "/api/v1/orgs/{org}/services/{service}"
HOSTED: Final = "/api/v1/orgs/{org}/workspaces/{ws}/hosted-services/{service}"
OFFSET_MAX: Final = 10_000
BATCH_IDS_MAX: Final = 200
DEFAULT_WORKSPACE: Final = "default"
_NO_RESULT: Final = msgspec.Raw(b"null")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_WORK: Final = b'{"work":'
"""The payload of a remote's job begins with this."""
_encode: Final = msgspec.json.Encoder().encode


class UnnamedJob(msgspec.Struct, frozen=True):
    """The payload for a job whose endpoint is not named like a service's.

    A Python program can submit such jobs with an ``Engine``.
    """

    id: str
    org_id: str
    status: str
    attempt_count: int
    result_summary: msgspec.Raw
    last_error: schemas.LastError | None
    terminal: bool


class GatewayJobs(JobResource):
    """Jobs of services that users declare or register."""

    product = "gateway"
    name = "job"
    path = BASE + "/jobs/{id}"
    path_parameters = ()
    body = schemas.GatewayJob
    ticket_body = schemas.GatewayTicket
    cancel_route = "cancel"
    cancel_description = (
        "Work that a remote does for the job is cancelled there as well, if the remote can do that."
    )
    handler_authorizes = True
    shows_long_results = True

    def __init__(self, server: ServerContext) -> None:
        super().__init__(server)
        self.settings = server.settings
        self.catalogue = server.catalogue

    # Finding

    async def service(self, org: str, name: str) -> ServiceSpec | None:
        if not is_name(name):
            return None
        found = self.catalogue.find_now(org, name)
        return await self.catalogue.find(org, name) if isinstance(found, UnknownService) else found

    async def authenticate(self, request: Request, scope: Scope) -> Principal | None:
        """The caller; None without a credential. A credential must have the scope."""
        principal = await self.gate.caller(request)
        if principal is not None:
            check_scope(principal, scope)
            request.principal = principal
            request.response_headers = await self.gate.count(principal)
        return principal

    async def find(self, request: Request, scope: Scope) -> JobView:
        """The job that the path names, if the caller may see it.

        Without a credential only jobs that are open to anyone are visible; any other id answers
        401, so that it says nothing about which jobs exist.
        """
        org, service = request.params["org"], request.params["service"]
        principal = await self.authenticate(request, scope)
        try:
            if not is_name(org):
                raise JobNotFound("there is no such job")
            view = await self.engine.look(request.params["id"], org=org)
            ref = endpoint_ref(view)
            if ref is None or ref.service != service or not may_see(principal, view.owner, org):
                raise JobNotFound("there is no such job")
        except JobNotFound:
            if principal is None:
                raise Unauthenticated from None
            raise
        return view

    async def job(self, request: Request, scope: Scope) -> ArtifactOwner:
        view = await self.found(request, scope)
        return ArtifactOwner.of(view, job_links(view.org, request.params["service"], view.id).poll)

    async def record(self, request: Request, name: str) -> ArtifactRecord | None:
        """The record of an artifact, for callers who could see its job.

        As with jobs, a caller without a credential sees only artifacts that are open to anyone.
        """
        principal = await self.authenticate(request, Scope.READ)
        record = await self._find_record(request, name)
        if record is not None and may_see(principal, record.owner, request.params["org"]):
            return record
        if principal is None:
            raise Unauthenticated
        return None

    async def _find_record(self, request: Request, name: str) -> ArtifactRecord | None:
        org = request.params["org"]
        try:
            job = from_text(request.params["id"])
        except InvalidId:
            return None
        if not is_name(org):
            return None
        record = await self.engine.artifact_repository.record(org, job, name)
        ref = None if record is None else endpoint_ref(record)
        return record if ref is not None and ref.service == request.params["service"] else None

    # Showing

    def ticket(
        self, job_id: str, state: State, links: JobLinks, endpoint: str
    ) -> schemas.GatewayTicket:
        del endpoint
        return schemas.GatewayTicket(
            job_id,
            schemas.STATUSES[state],
            *links,
            artifacts_url=links.artifacts,
            terminal=state.terminal,
        )

    async def show(self, view: JobView) -> schemas.GatewayJob:
        ref = endpoint_ref(view)
        assert ref is not None, "a job of another product"
        # None for a service that was deleted; its jobs continue.
        spec = await self.service(view.org, ref.service)
        stalled_reason = None if view.terminal else await self.engine.stall_reason(view)
        url = None
        if view.result_is_left_out:
            url = job_links(view.org, ref.service, view.id).poll
        return schemas.GatewayJob(
            id=view.id,
            org_id=view.org,
            workspace_id=DEFAULT_WORKSPACE if spec is None else spec.workspace,
            service_id=ref.service,
            version_id=ref.version_id,
            endpoint_id=ref.endpoint_id,
            endpoint_key=ref.key,
            execution_mode=_execution_mode(view, ref, spec),
            lane=view.lane.value,
            status=schemas.STATUSES[view.state],
            idempotency_key=shown_key(view.idempotency_key),
            execution_id=view.execution_id,
            attempt_count=view.attempts,
            result_summary=_result(view),
            result_omitted=url is not None,
            result_url=url,
            last_error=_last_error(view),
            pre_dispatch_age_seconds=_pre_dispatch_age(view),
            stalled=stalled_reason is not None,
            stalled_reason=stalled_reason,
            started_at=view.started_at,
            completed_at=view.finished_at,
            expires_at=view.expires_at,
            created_at=view.created_at,
            updated_at=view.updated_at,
            terminal=view.terminal,
            progress=_progress(view),
        )

    # Listing

    async def listed(self, request: Request) -> Response:
        """Jobs of a service: all of them for an admin, the caller's own for others. Besides
        cursors, the list has an offset and a total."""
        query, principal, asked = request.query, request.principal, read_job_page(request)
        org, name = principal.org, request.params["service"]
        offset = read_whole_number(query, "offset", 0, OFFSET_MAX, default=0)
        status = read_choice(query, "status", list(schemas.STATES))
        lane = read_choice(query, "lane", [lane.value for lane in Lane])
        service = await self.service(org, name)
        if service is None or service.workspace != request.params["ws"]:
            raise NotFound
        upstream = service.source == "http"
        wanted = JobFilter(
            org=org,
            endpoints=[UPSTREAM_ENDPOINT]
            if upstream
            else [spec.engine_endpoint for spec in service.endpoints],
            queue_key_prefix=f"{name}." if upstream else None,
            states=None if status is None else schemas.STATES[status],
            lane=None if lane is None else Lane(lane),
            owner=principal.lists_jobs_of,
        )
        page = await self.engine.listed(wanted, asked, offset=offset)
        items = [await self.show(view) for view in page.items]
        following = asked.following(items, lambda item: item.id)
        return json_response(
            schemas.GatewayJobPage(items, page.total, page.total_is_exact, following)
        )

    async def batch_status(self, request: Request) -> Response:
        """Many jobs at once, in the requested order."""
        principal = request.principal
        org, name = principal.org, request.params["service"]
        ids = read_list(request.query, "job_ids", BATCH_IDS_MAX)
        service = await self.service(org, name)
        # A deleted service still has jobs, and no workspace.
        if service is not None and service.workspace != request.params["ws"]:
            raise NotFound
        items: list[schemas.GatewayJob] = []
        not_found: list[str] = []
        for job_id, view in zip(ids, await self.engine.get_many(ids, org=org), strict=True):
            ref = None if view is None else endpoint_ref(view)
            if (
                view is None
                or ref is None
                or ref.service != name
                or not may_see(principal, view.owner, org)
            ):
                not_found.append(job_id)
            else:
                items.append(await self.show(view))
        return json_response(schemas.GatewayJobStatuses(items, not_found))

    def list_routes(self) -> list[Route]:
        """The routes of many jobs."""
        route = partial(Route, access=Scope.READ, operable=True, tag=self.product)
        return [
            route(
                methods=["GET"],
                path=HOSTED + "/jobs",
                name="jobs",
                summary="List the jobs of a service, newest first.",
                description="An admin sees all jobs of the organisation; others see their own.",
                handler=self.listed,
                parameters=_PAGE_PARAMETERS,
                responses=[ResponseSpec(HTTPStatus.OK, "A page of jobs.", schemas.GatewayJobPage)],
            ),
            route(
                methods=["GET"],
                path=HOSTED + "/jobs/batch-status",
                name="batch_status",
                summary="Read many jobs in one request.",
                handler=self.batch_status,
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
                    ResponseSpec(
                        HTTPStatus.OK, "The jobs that were found.", schemas.GatewayJobStatuses
                    )
                ],
            ),
        ]

    # For the console and for webhooks

    async def label(self, job: OrgJob, /) -> JobLabel:
        ref = endpoint_ref(job.view)
        if ref is None:
            return JobLabel(job.service, job.view.endpoint)
        service = await self.service(job.view.org, ref.service)
        return JobLabel(ref.service, _endpoint(service, ref))

    def paths(self, job: OrgJob) -> JobPaths:
        ref = endpoint_ref(job.view)
        return JobPaths(None if ref is None else job_links(job.view.org, ref.service, job.id).poll)

    def result(self, job: OrgJob) -> bytes | None:
        result = job.view.result
        if result is None or job.view.endpoint != UPSTREAM_ENDPOINT:
            return result
        return shown_result(result)

    async def input(self, job: OrgJob) -> bytes:
        payload = await super().input(job)
        if job.view.endpoint != UPSTREAM_ENDPOINT:
            return payload
        # The rest of the payload describes the target, which is not the caller's input.
        if payload.startswith(_WORK):
            return bytes(decode_work(payload).body)
        return _encode(_shown_call(decode_call(payload)))

    def stored_keys(self, _: Principal, key: str, /) -> Sequence[str]:
        fits = len(key) < IDEMPOTENCY_KEY_CHARACTERS_MAX
        return [key, anonymous_key(key)] if fits else [key]

    async def payload(self, event: DeliveryEvent, view: JobView | None) -> Any:
        if view is None:
            return expired_job(event)
        ref = endpoint_ref(view)
        if ref is None:
            return _unnamed(view)
        job = await self.show(view)
        if memoryview(job.result_summary).nbytes <= RESULT_BYTES_MAX:
            return job
        url = job_links(view.org, ref.service, view.id).poll
        return msgspec.structs.replace(
            job, result_summary=_NO_RESULT, result_omitted=True, result_url=url
        )


def may_see(principal: Principal | None, owner: str, org: str) -> bool:
    """Whether a caller, perhaps of another organisation or of none, may see a job of this owner in
    ``org``."""
    if principal is None or principal.org != org:
        return owner == ANYONE
    return principal.may_see(owner)


def is_name(text: str) -> bool:
    """Whether ``text`` can be the name of an organisation or a service."""
    return _NAME.fullmatch(text) is not None


def job_links(org: str, service: str, job_id: str) -> JobLinks:
    """The paths of a job."""
    return JobLinks.at(_base(org, service) + job_id)


@lru_cache(maxsize=1_000)
def _base(org: str, service: str) -> str:
    return f"/api/v1/orgs/{quote(org, safe='')}/services/{quote(service, safe='')}/jobs/"


def _result(view: JobView) -> msgspec.Raw:
    if view.result is None:
        return _NO_RESULT
    if view.endpoint == UPSTREAM_ENDPOINT:
        return msgspec.Raw(shown_result(view.result))
    return msgspec.Raw(view.result)


def _last_error(view: JobView) -> schemas.LastError | None:
    if view.error_code is None:
        return None
    return schemas.LastError.of(view.error_code, view.error_message)


def _pre_dispatch_age(view: JobView) -> float:
    until = view.dispatched_at or view.finished_at or view.read_at
    return max(0.0, round((until - view.created_at).total_seconds(), 6))


def _progress(view: JobView) -> schemas.GatewayProgress | None:
    if view.progress is None:
        return None
    return schemas.GatewayProgress(round(view.progress, 6), view.progress_note)


def _execution_mode(
    view: JobView, ref: EndpointRef, spec: ServiceSpec | None
) -> schemas.ExecutionMode:
    """``persistent`` for remote jobs. Until one is started, only its service tells."""
    is_remote = view.execution_id is not None or (
        view.endpoint == UPSTREAM_ENDPOINT
        and spec is not None
        and spec.runs_remotely(ref.endpoint_id)
    )
    return "persistent" if is_remote else "invocation"


def _endpoint(service: ServiceSpec | None, ref: EndpointRef) -> str:
    """``POST /greet``; or the endpoint's key, if the service no longer has the endpoint."""
    version = None if service is None else service.versions.get(ref.version)
    for spec in () if version is None else version.endpoints:
        if spec.key == ref.key:
            path = f"{spec.method} {spec.path}"
            return path if ref.version == 1 else f"{path} (v{ref.version})"
    return ref.key


def _shown_call(call: UpstreamCall) -> dict[str, Any]:
    """The call as the console shows it, without its headers."""
    shown: dict[str, Any] = {"method": call.method, "url": call.url}
    if not isinstance(call.body_json, msgspec.UnsetType):
        shown["body"] = call.body_json
    elif call.body_base64 is not None:
        shown["body_base64"] = call.body_base64
    elif call.body_text is not None:
        shown["body"] = _json_or_text(call.body_text)
    return shown


def _json_or_text(text: str) -> Any:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return msgspec.Raw(text.encode())


def _unnamed(view: JobView) -> UnnamedJob:
    result, code = view.result, view.error_code
    fits = result is not None and len(result) <= RESULT_BYTES_MAX
    return UnnamedJob(
        id=view.id,
        org_id=view.org,
        status=schemas.STATUSES[view.state],
        attempt_count=view.attempts,
        result_summary=msgspec.Raw(result) if result is not None and fits else _NO_RESULT,
        last_error=None if code is None else schemas.LastError.of(code, view.error_message),
        terminal=view.terminal,
    )


_PAGE_PARAMETERS: Final = (
    Parameter(
        "offset",
        "query",
        "The number of jobs to skip. To go far, use `cursor`.",
        {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX},
    ),
    *JOB_PAGE_PARAMETERS,
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
)
