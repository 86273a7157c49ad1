"""Routes that register, show, list and delete services with http upstreams and remotes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import msgspec

from coatcheck.domain.bounds import CountedBound
from coatcheck.domain.catalogue import (
    HttpTargetDefinition,
    RemoteTargetDefinition,
    ServiceDefinition,
    ServiceSpec,
    ServiceSummary,
)
from coatcheck.domain.errors import (
    BodyTooLarge,
    CoatcheckError,
    InvalidInput,
    InvalidParameter,
    LookUpRefused,
    NotFound,
    TimeoutNotAllowed,
    TooManyServices,
    UrlForbidden,
)
from coatcheck.domain.patterns import whole
from coatcheck.domain.registration import check_endpoint_count
from coatcheck.domain.service_definition import (
    ENDPOINTS_MAX,
    SERVICE_ENDPOINTS_MAX,
    SERVICE_NAME_PATTERN,
    VERSIONS_MAX,
    is_service_name,
)
from coatcheck.domain.tenants import Scope
from coatcheck.egress.resolver import LOOK_UPS_PER_ORG_MAX
from coatcheck.http.bodies import read_body
from coatcheck.http.pages import LIMIT, cursor_parameter, read_cursor, read_limit
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import RequestBody, ResponseSpec, Route
from coatcheck.products.gateway.jobs import HOSTED, GatewayJobs
from coatcheck.products.gateway.remote import check_remotes, endpoints_of
from coatcheck.telemetry import metrics

SERVICES: Final = "/api/v1/orgs/{org}/services"
CHECK_SECONDS_MAX: Final = 15.0
DEFINITION_BYTES_MAX: Final = 256 * 1024
_DEFINITION: Final = CountedBound(
    "definition",
    of="bytes of the document that registers a service",
    over="request",
    value=f"{DEFINITION_BYTES_MAX // 1024} KiB",
    response="413 `body_too_large`",
)
_ENDPOINTS: Final = CountedBound(
    "endpoints",
    of=f"endpoints of a registered service, in all its versions; {ENDPOINTS_MAX} in one version, "
    f"{VERSIONS_MAX} versions",
    over="service",
    value=str(SERVICE_ENDPOINTS_MAX),
    response="422 `invalid_input`",
)
_SERVICES: Final = CountedBound(
    "services",
    of="registered services of an organisation",
    over="deployment",
    response="409 `too_many_services`",
    settings=["services_max"],
)
_TIMEOUT: Final = CountedBound(
    "timeout",
    of="timeout of an endpoint with an http upstream or a remote, in seconds",
    over="request",
    value="less with `coatcheck orgs limit --timeout-max`",
    response="403 `timeout_not_allowed`; an endpoint that was registered before gets no longer "
    "timeout",
    settings=["call_timeout_seconds_max"],
)
_CURSOR: Final = {"type": "string", "pattern": whole(SERVICE_NAME_PATTERN)}
_WORKSPACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class HostedService(msgspec.Struct, frozen=True):
    """A service that the organisation can call. ``source`` is ``code`` or ``http``."""

    org_id: str
    workspace_id: str
    service_id: str
    source: str
    latest_version: int
    definition: ServiceDefinition
    created_at: datetime
    updated_at: datetime


class HostedServiceSummary(msgspec.Struct, frozen=True):
    """A service in a list: without its endpoints, which ``url`` returns."""

    org_id: str
    workspace_id: str
    service_id: str
    source: str
    latest_version: int
    versions: list[int]
    endpoint_count: int
    created_at: datetime
    updated_at: datetime
    url: str


class HostedServicePage(msgspec.Struct, frozen=True):
    """Services, sorted by name. ``next`` is the cursor of the next page, if there is one."""

    items: list[HostedServiceSummary]
    next: str | None


class RegistrationRoutes:
    """The routes of hosted services."""

    def __init__(self, jobs: GatewayJobs) -> None:
        self._jobs = jobs

    async def page(self, request: Request) -> Response:
        """The services that the organisation can call: its own, and those that code declares."""
        org = request.principal.org
        after = read_cursor(request.query, _service_name)
        limit = read_limit(request.query)
        found = await self._jobs.catalogue.list(org, after=after or "", limit=limit + 1)
        items = [_summary(service, org) for service in found[:limit]]
        following = items[-1].service_id if len(found) > limit else None
        return json_response(HostedServicePage(items, following))

    async def show(self, request: Request) -> Response:
        service = await self._jobs.service(request.principal.org, request.params["service"])
        if service is None or service.workspace != request.params["ws"]:
            raise NotFound
        return json_response(_shown(service, request.principal.org))

    async def put(self, request: Request) -> Response:
        workspace = request.params["ws"]
        if not _WORKSPACE.fullmatch(workspace):
            raise InvalidParameter("ws", "must be letters, digits, '.', '_' or '-'", "path")
        with _counted(_DEFINITION, BodyTooLarge):
            definition = await read_body(request, ServiceDefinition, DEFINITION_BYTES_MAX)
        with _counted(_ENDPOINTS, InvalidInput):
            check_endpoint_count(definition)  # before the host of each endpoint is looked up
        self._check_timeouts(definition, self._jobs.gate.timeout_seconds_max(request.principal))
        check_remotes(definition, self._jobs.settings.remotes)
        await self._check_urls(definition, request.principal.org)
        with _counted(_SERVICES, TooManyServices):
            service = await self._jobs.catalogue.put(
                request.principal.org, workspace, request.params["service"], definition
            )
        return json_response(_shown(service, request.principal.org))

    async def delete(self, request: Request) -> Response:
        deleted = await self._jobs.catalogue.delete(
            request.principal.org, request.params["service"], request.params["ws"]
        )
        if not deleted:
            raise NotFound
        return Response(HTTPStatus.NO_CONTENT)

    @staticmethod
    def _check_timeouts(definition: ServiceDefinition, seconds_max: float) -> None:
        for place, endpoint in endpoints_of(definition):
            if endpoint.timeout_seconds > seconds_max:
                metrics.record_bound_met(_TIMEOUT)
                raise TimeoutNotAllowed(f"{place}.timeout", endpoint.timeout_seconds, seconds_max)

    async def _check_urls(self, definition: ServiceDefinition, org: str) -> None:
        urls = {
            endpoint.target.url: f"{place}.target.url"
            for place, endpoint in endpoints_of(definition)
            if isinstance(endpoint.target, HttpTargetDefinition | RemoteTargetDefinition)
            and endpoint.target.url is not msgspec.UNSET
        }
        # The resolver would refuse more look-ups at once.
        look_ups = asyncio.Semaphore(LOOK_UPS_PER_ORG_MAX)
        # Not `except*`: before Python 3.11.4 an exception raised there comes out in a group.
        try:
            async with asyncio.timeout(CHECK_SECONDS_MAX), asyncio.TaskGroup() as checks:
                for url, place in urls.items():
                    checks.create_task(self._check_url(url, place, org, look_ups))
        except TimeoutError:
            raise UrlForbidden("The hosts of the URLs could not be looked up in time.") from None
        except ExceptionGroup as group:
            refused, others = group.split((UrlForbidden, LookUpRefused))
            if others is not None or refused is None:
                raise
            raise refused.exceptions[0] from None

    async def _check_url(self, url: str, place: str, org: str, look_ups: asyncio.Semaphore) -> None:
        try:
            async with look_ups:
                await self._jobs.server.guard.check_url(url, org)
        except UrlForbidden as error:
            raise UrlForbidden(f"{place}: {error}") from error


@contextmanager
def _counted(bound: CountedBound, refusal: type[CoatcheckError]) -> Iterator[None]:
    """Count in the metrics that a caller reached a bound."""
    try:
        yield
    except refusal:
        metrics.record_bound_met(bound)
        raise


def _shown(service: ServiceSpec, org: str) -> HostedService:
    return HostedService(
        org_id=org,
        workspace_id=service.workspace,
        service_id=service.service,
        source=service.source,
        latest_version=service.latest,
        definition=service.definition,
        created_at=service.created_at,
        updated_at=service.updated_at,
    )


def _summary(service: ServiceSummary, org: str) -> HostedServiceSummary:
    return HostedServiceSummary(
        org_id=org,
        workspace_id=service.workspace,
        service_id=service.service,
        source=service.source,
        latest_version=max(service.versions),
        versions=list(service.versions),
        endpoint_count=sum(service.versions.values()),
        created_at=service.created_at,
        updated_at=service.updated_at,
        url=HOSTED.format(org=org, ws=quote(service.workspace), service=service.service),
    )


def _service_name(text: str) -> str:
    if not is_service_name(text):
        raise ValueError
    return text


def routes(jobs: GatewayJobs) -> list[Route]:
    """The routes of hosted services."""
    registering = RegistrationRoutes(jobs)
    return [
        Route(
            methods=["GET"],
            path=SERVICES,
            name="services",
            summary="List the services that the organisation can call.",
            description="Sorted by name: its own, and those that workers' code declares. Without "
            "their endpoints, which `url` returns.",
            handler=registering.page,
            access=Scope.READ,
            operable=True,
            parameters=[cursor_parameter(_CURSOR), LIMIT],
            responses=[ResponseSpec(HTTPStatus.OK, "A page of services.", HostedServicePage)],
            tag="gateway",
        ),
        Route(
            methods=["GET"],
            path=HOSTED,
            name="service",
            summary="Read a service: its versions and endpoints.",
            description="The values of its targets' headers and secrets are not shown.",
            handler=registering.show,
            access=Scope.READ,
            operable=True,
            responses=[ResponseSpec(HTTPStatus.OK, "The service.", HostedService)],
            tag="gateway",
        ),
        Route(
            methods=["PUT"],
            path=HOSTED,
            name="register_service",
            summary="Register a service with http upstreams or remotes, or replace it.",
            handler=registering.put,
            access=Scope.ADMIN,
            body=RequestBody("The whole service.", ServiceDefinition),
            responses=[
                ResponseSpec(HTTPStatus.OK, "The service is registered.", HostedService),
                ResponseSpec.problem(
                    HTTPStatus.FORBIDDEN,
                    "A timeout is longer than the organisation is allowed "
                    "(`timeout_not_allowed`), or the credential lacks the scope.",
                ),
                ResponseSpec.problem(
                    HTTPStatus.CONFLICT,
                    "Code, or another workspace, has a service of that name "
                    "(`service_name_taken`); or the organisation has reached its limit of "
                    "services (`too_many_services`).",
                ),
                ResponseSpec.problem(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    "The document is not valid, or a URL may not be called.",
                ),
            ],
            tag="gateway",
        ),
        Route(
            methods=["DELETE"],
            path=HOSTED,
            name="remove_service",
            summary="Delete a registered service. Its jobs continue.",
            handler=registering.delete,
            access=Scope.ADMIN,
            responses=[ResponseSpec(HTTPStatus.NO_CONTENT, "The service is deleted.", empty=True)],
            tag="gateway",
        ),
    ]
