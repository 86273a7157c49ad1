"""Handing work in: asynchronously, or as a call whose answer is waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import unquote

from coatcheck.core import Ticket
from coatcheck.core.remote.payloads import remote_fingerprint, remote_payload
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT, EndpointSpec, Matched, ServiceSpec
from coatcheck.domain.errors import (
    EndpointNotFound,
    IdempotencyKeyInUse,
    InvalidParameter,
    NotAsyncEligible,
    NotFound,
    ServerBusy,
    TooManyBytesInFlight,
    Unauthenticated,
    UnknownLane,
)
from coatcheck.domain.job import JobView
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.domain.states import State
from coatcheck.domain.tenants import ANYONE, Principal, Scope
from coatcheck.http.bodies import check_content_type
from coatcheck.http.gate import check_scope
from coatcheck.http.job_responses import (
    IDEMPOTENCY_PARAMETERS,
    TICKET_HEADERS,
    WAIT_PARAMETERS,
    JobLinks,
    check_mismatch,
    may_see,
    replay_headers,
    stored,
)
from coatcheck.http.parameters import (
    DELAY_PARAMETER,
    WEBHOOK_PARAMETERS,
    Preferences,
    WebhookUrls,
    names_webhooks,
    of_strangers,
    read_delay,
    read_idempotency_key,
    read_preferences,
    read_webhook_urls,
)
from coatcheck.http.problems import MEDIA_TYPE, Problem, method_not_allowed, problem
from coatcheck.http.request import Request
from coatcheck.http.response import JSON, RawHeaders, Response, StreamResponse
from coatcheck.http.retry_after import kind_of
from coatcheck.http.routing import (
    EVERY_METHOD,
    Access,
    HoldsOpen,
    Parameter,
    RequestBody,
    ResponseSpec,
    Route,
)
from coatcheck.products.gateway import schemas
from coatcheck.products.gateway.context import GatewayContext
from coatcheck.products.gateway.naming import name_of
from coatcheck.products.gateway.payloads import (
    python_payload,
    remote_input,
    reproduced,
    upstream_fingerprint,
    upstream_payload,
)
from coatcheck.products.gateway.presenter import GatewayPresenter

BASE: Final = "/api/v1/orgs/{org}/services/{service}"
_LANES: Final = {lane.value: lane for lane in Lane}
_WAIT: Final = "wait"
_SHOWN_PATHS: Final = 10


class _Aim(NamedTuple):
    """What a call is aimed at, and by whom."""

    principal: Principal
    service: ServiceSpec
    matched: Matched
    method: str
    path: str


class _OtherMethods(Exception):
    """There is an endpoint at the path, for other methods than that of the call."""

    def __init__(self, methods: Sequence[str]) -> None:
        super().__init__()
        self.methods = methods


class GatewaySubmitRoutes:
    """The submit routes and the synchronous route."""

    def __init__(self, context: GatewayContext) -> None:
        self._context = context

    async def submit(self, request: Request) -> Response | StreamResponse:
        """POST .../async/{path}: answered as soon as the job is safe."""
        given = request.header(b"x-hsl-target-method")
        method = "POST" if given is None else given
        try:
            aim = await self._aim(request, method.upper())
        except _OtherMethods as other:
            raise InvalidParameter(
                "X-HSL-Target-Method",
                f"the endpoint does not take {method[:20]}; it takes {', '.join(other.methods)}",
                "header",
            ) from None
        if not aim.matched.spec.async_eligible:
            raise NotAsyncEligible("This endpoint takes synchronous calls only.")
        preferences = read_preferences(request)
        delay = read_delay(request)
        ticket, lane = await self._hand_in(request, aim, delay, own_wait=True)
        known = await self._known(request, aim, ticket)
        check_mismatch(ticket, preferences)
        presenter, view = await self._collect(request, aim, ticket, known, preferences.wait)
        return await self._context.responses.submitted(
            ticket,
            presenter,
            kind=_kind(request, aim.matched.spec),
            lane=lane,
            preferences=preferences,
            view=view,
            delay=delay,
        )

    async def request(self, request: Request) -> Response | StreamResponse:
        """ANY .../{path}: the same, and the answer is the result if it comes in time."""
        try:
            aim = await self._aim(request, "GET" if request.method == "HEAD" else request.method)
        except _OtherMethods as other:
            return method_not_allowed(request, other.methods)
        spec = aim.matched.spec
        preferences = read_preferences(request, in_query=False)
        delay = read_delay(request)
        ticket, lane = await self._hand_in(request, aim, delay, own_wait=False)
        known = await self._known(request, aim, ticket)
        check_mismatch(ticket, preferences)
        seconds = _patience(spec, preferences, delay)
        presenter, view = await self._collect(request, aim, ticket, known, seconds)
        if view is not None and view.terminal:
            headers = [*preferences.headers, *replay_headers(ticket)]
            try:
                return await self._result(request, view, presenter.urls(ticket.id), headers)
            except (TooManyBytesInFlight, ServerBusy):
                view = None  # the work is done: a ticket, no refusal that means "not done"
        return await self._context.responses.submitted(
            ticket,
            presenter,
            kind=_kind(request, spec),
            lane=lane,
            preferences=preferences,
            view=view,
            delay=delay,
        )

    async def _aim(self, request: Request, method: str) -> _Aim:
        """Who may call what. A caller without a credential learns of open endpoints only."""
        context = self._context
        org = request.params["org"]
        path = "/" + request.params["path"]
        principal = await context.gate.caller(request)
        own = principal is not None and principal.org == org
        service = await context.service(org, request.params["service"])
        matched = None
        if service is not None:
            matched = service.match(_version(request), method, path)
        auth = "platform" if matched is None else matched.spec.auth
        if auth == "none":
            principal = principal if own else await context.gate.anonymous(org)
        elif principal is None:
            raise Unauthenticated
        elif not own:
            raise NotFound
        assert principal is not None
        request.principal = principal
        check_scope(principal, Scope.SUBMIT)
        request.response_headers = await context.gate.count(principal)
        if service is None or matched is None:
            methods = () if service is None else service.methods_for(_version(request), path)
            raise _OtherMethods(methods) if methods else _no_endpoint(service, _version(request))
        if auth == "service_token" and principal.kind != "service":
            raise Unauthenticated
        if matched.spec.is_registered:
            # Perhaps when its organisation was allowed more.
            allowed = matched.spec.within(context.gate.timeout_seconds_max(principal))
            matched = matched._replace(spec=allowed)
        return _Aim(principal, service, matched, method, path)

    async def _hand_in(
        self, request: Request, aim: _Aim, delay: float, *, own_wait: bool
    ) -> tuple[Ticket, Lane]:
        context, spec = self._context, aim.matched.spec
        lane = _lane(request) or spec.lane
        key = read_idempotency_key(request)
        if key is not None and aim.principal.kind == "anonymous":
            key = of_strangers(key)
        knows = partial(self._context.engine.knows_key, org=request.params["org"])
        await self._context.gate.check_unless_known(aim.principal, key, knows)
        webhooks = await self._webhooks(request, aim)
        body = await request.body(PAYLOAD_BYTES_MAX)
        timeout = keep_completed = keep_failed = fingerprint_of = None
        if spec.target is not None:
            payload = upstream_payload(spec, aim.method, aim.path, request, body, own_wait=own_wait)
            fingerprint_of = upstream_fingerprint(spec, aim.method, aim.path, request, body)
        else:
            if body:
                check_content_type(request)
            make_input = python_payload if spec.remote is None else remote_input
            payload = make_input(
                spec, body, _decoded(aim.matched.params), _query(request, own_wait=own_wait)
            )
            if spec.remote is not None:
                fingerprint_of = remote_fingerprint(spec, payload)
                payload = remote_payload(spec, payload)
        if spec.is_registered:
            timeout = spec.timeout_seconds
            keep_completed, keep_failed = spec.keep_completed_seconds, spec.keep_failed_seconds
        ticket = await context.engine.submit(
            spec.engine_endpoint,
            payload,
            org=request.params["org"],
            lane=lane,
            queue_key=spec.queue_key,
            retries=spec.retries,
            idempotency_key=key,
            owner=ANYONE if spec.auth == "none" else aim.principal.owner,
            request_id=request.request_id,
            delay=delay or None,
            timeout=timeout,
            keep_completed=keep_completed,
            keep_failed=keep_failed,
            keep_input=None if spec.keep_input else False,
            fingerprint_of=fingerprint_of,
            **webhooks._asdict(),
        )
        request.forget_body()  # the job has it, and its result may be waited for
        return ticket, lane

    async def _webhooks(self, request: Request, aim: _Aim) -> WebhookUrls:
        """Who is to be told. What is signed in the organisation's name, strangers cannot order."""
        if aim.principal.kind == "anonymous" and names_webhooks(request):
            raise Unauthenticated
        return await read_webhook_urls(request, self._context.receivers, request.params["org"])

    def _presenter(self, request: Request, aim: _Aim) -> GatewayPresenter:
        service = aim.service
        return GatewayPresenter(
            request.params["org"], service.service, service, self._context.engine.stall_reason
        )

    async def _known(self, request: Request, aim: _Aim, ticket: Ticket) -> JobView | None:
        """The job that a known idempotency key names; None if the key was free.

        Raises IdempotencyKeyInUse for a job that the caller may not see: always the same answer,
        so that it tells neither which job it is, nor what was sent with it, nor how far it is.
        """
        if ticket.created:
            return None
        org = request.params["org"]
        known = await self._context.engine.look(ticket.id, org=org)
        if not may_see(aim.principal, known, org):
            raise IdempotencyKeyInUse
        return known

    async def _collect(
        self,
        request: Request,
        aim: _Aim,
        ticket: Ticket,
        known: JobView | None,
        seconds: float | None,
    ) -> tuple[GatewayPresenter, JobView | None]:
        """How the job is shown; and the job once it has ended or the time is up, if it is waited
        for. A known idempotency key may name a job of another service: it is shown where it is
        found.
        """
        context, org, presenter = (
            self._context,
            request.params["org"],
            self._presenter(request, aim),
        )
        if known is not None:
            named = name_of(known)
            if named is None:
                seconds = None
            elif named.service != aim.service.service:
                presenter = await context.presenter(org, named.service)
        if seconds is None:
            return presenter, None
        return presenter, await context.responses.held_look(request, ticket.id, org, seconds)

    async def _result(
        self, request: Request, view: JobView, urls: JobLinks, headers: RawHeaders
    ) -> Response | StreamResponse:
        if view.state is State.COMPLETED:
            headers = [urls.link(), *headers]
            if view.endpoint == UPSTREAM_ENDPOINT:
                view = await self._context.engine.with_result(view)
                return await reproduced(self._context.engine, view, headers)
            if view.result_is_left_out:
                large = self._context.responses.large
                return await large.response(
                    stored(view), "result", _as_it_is, HTTPStatus.OK, headers
                )
            assert view.result is not None
            return Response(HTTPStatus.OK, view.result, [JSON, *headers])
        code = view.error_code or "job_failed"
        return problem(
            request,
            _FAILURES.get(code, HTTPStatus.BAD_GATEWAY),
            code,
            view.error_message or "The job failed.",
            headers=[*urls.headers(), *headers],
        )


async def _as_it_is(result: bytes) -> bytes:
    return result


_FAILURES: Final = {
    "invalid_input": HTTPStatus.UNPROCESSABLE_ENTITY,
    "cancelled": HTTPStatus.CONFLICT,
}
"""What a synchronous caller is answered when the job failed; else 502."""


def _no_endpoint(service: ServiceSpec | None, version: int | None) -> EndpointNotFound:
    """What is missing, and what there is: the first thing that a new user mistypes."""
    if service is None:
        return EndpointNotFound(
            "There is no such service. One in Python is known once a worker that serves it has "
            "started; one with an http upstream or a remote, once it was registered."
        )
    wanted = service.versions.get(service.latest if version is None else version)
    if wanted is None:
        known = ", ".join(str(number) for number in sorted(service.versions))
        return EndpointNotFound(f"The service has no such version; it has {known}.")
    paths = [f"{spec.method} {spec.path}" for spec in wanted.endpoints]
    more = f" and {len(paths) - _SHOWN_PATHS} more" if len(paths) > _SHOWN_PATHS else ""
    return EndpointNotFound(
        f"The service has no such path; it has {', '.join(paths[:_SHOWN_PATHS])}{more}."
    )


def _kind(request: Request, spec: EndpointSpec) -> str:
    return kind_of(request.params["org"], spec.engine_endpoint, spec.queue_key)


def _patience(spec: EndpointSpec, preferences: Preferences, delay: float) -> float | None:
    """For how long a synchronous call is held; None if it is not, or cannot end by then."""
    seconds: float | None = None if preferences.respond_async else spec.sync_timeout_seconds
    if preferences.wait is not None:
        seconds = min(preferences.wait, spec.sync_timeout_seconds)
    return None if seconds is not None and 0 < seconds <= delay else seconds


def _decoded(params: Mapping[str, str]) -> Mapping[str, str]:
    if not params:
        return params
    try:
        return {name: unquote(text, errors="strict") for name, text in params.items()}
    except UnicodeDecodeError as error:
        raise InvalidParameter("path", "is not UTF-8 once decoded", "path") from error


def _query(request: Request, *, own_wait: bool) -> Mapping[str, str]:
    if own_wait and _WAIT in request.query:
        return {name: text for name, text in request.query.items() if name != _WAIT}
    return request.query


def _version(request: Request) -> int | None:
    return int(request.params["version"]) if "version" in request.params else None


def _lane(request: Request) -> Lane | None:
    given = request.header(b"x-hsl-lane")
    if given is None:
        return None
    lane = _LANES.get(given.lower())
    if lane is None:
        raise UnknownLane(f"There is no lane {given[:40]!r}; there are {', '.join(_LANES)}.")
    return lane


def routes(context: GatewayContext) -> list[Route]:
    """The routes by which work is handed in."""
    submitting = GatewaySubmitRoutes(context)
    routes = []
    for base, suffix in ((BASE, ""), (BASE + "/v{version}", "_version")):
        routes.append(
            Route(
                methods=["POST"],
                path=base + "/async/{path:path}",
                name="submit" + suffix,
                summary="Hand a job in.",
                description="Answered as soon as the job is safe, with where to collect it. "
                "The body and the query are the endpoint's input.",
                handler=submitting.submit,
                access=Access.HANDLER,
                parameters=[*_PARAMETERS, *WAIT_PARAMETERS, _TARGET_METHOD],
                body=_INPUT,
                any_query=True,
                responses=[_COMPLETED, _TICKET, _PAYMENT, _KEY_TAKEN, _MISMATCH],
                tag="gateway",
            )
        )
        routes.append(
            Route(
                methods=EVERY_METHOD,
                path=base + "/{path:path}",
                name="call" + suffix,
                summary="Call an endpoint and wait for its result.",
                description="The same as handing a job in, and the answer is the endpoint's own "
                "if it comes within the endpoint's sync timeout; else 202, as for a job.",
                handler=submitting.request,
                access=Access.HANDLER,
                parameters=[*_PARAMETERS, WAIT_PARAMETERS[1]],
                held=HoldsOpen.UNLESS_ASYNC,
                body=_INPUT,
                any_query=True,
                responses=[
                    ResponseSpec(
                        HTTPStatus.OK, "The endpoint's result.", schema={}, media_type="*/*"
                    ),
                    _TICKET,
                    _PAYMENT,
                    _MISMATCH,
                    _OTHER_METHODS,
                    ResponseSpec(
                        HTTPStatus.CONFLICT,
                        "It was cancelled; or another caller uses the idempotency key "
                        "(`idempotency_key_in_use`).",
                        Problem,
                        MEDIA_TYPE,
                    ),
                    ResponseSpec(HTTPStatus.BAD_GATEWAY, "The job failed.", Problem, MEDIA_TYPE),
                ],
                tag="gateway",
            )
        )
    return routes


_PARAMETERS: Final = (
    *IDEMPOTENCY_PARAMETERS,
    *WEBHOOK_PARAMETERS,
    DELAY_PARAMETER,
    Parameter(
        "X-HSL-Lane",
        "header",
        "The lane; without it the endpoint's own.",
        {"type": "string", "enum": [lane.value for lane in Lane]},
    ),
)
_TARGET_METHOD: Final = Parameter(
    "X-HSL-Target-Method",
    "header",
    "The endpoint's own method, if it is not POST.",
    {"type": "string", "enum": list(EVERY_METHOD)},
)
_INPUT: Final = RequestBody("The endpoint's input.", schema={}, required=False)
_TICKET: Final = ResponseSpec(
    HTTPStatus.ACCEPTED, "The job is safe.", schemas.GatewayTicket, headers=TICKET_HEADERS
)
_COMPLETED: Final = ResponseSpec(
    HTTPStatus.OK,
    "The job has ended within the time that the caller was willing to wait.",
    schemas.GatewayJob,
    headers=TICKET_HEADERS,
)
_PAYMENT: Final = ResponseSpec(
    HTTPStatus.PAYMENT_REQUIRED, "The organisation's plan is not active.", Problem, MEDIA_TYPE
)
_OTHER_METHODS: Final = ResponseSpec(
    HTTPStatus.METHOD_NOT_ALLOWED,
    "The endpoint takes other methods.",
    Problem,
    MEDIA_TYPE,
    headers={"Allow": "The methods that it takes."},
)
_KEY_TAKEN: Final = ResponseSpec(
    HTTPStatus.CONFLICT,
    "The idempotency key names a job that the caller may not see (`idempotency_key_in_use`).",
    Problem,
    MEDIA_TYPE,
)
_MISMATCH: Final = ResponseSpec(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "The idempotency key is known with another payload, and the caller was strict; or the input "
    "does not fit the endpoint; or the webhook's URL may not be called.",
    Problem,
    MEDIA_TYPE,
)
