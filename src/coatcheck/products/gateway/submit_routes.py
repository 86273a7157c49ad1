"""Routes that submit jobs: asynchronously, or as a call that waits for its result.

A caller's request becomes a job's payload, and an upstream's stored answer becomes a response. A
Python function or a remote gets one JSON value, made of the body, path and query fields. An http
upstream gets the request repeated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from coatcheck.core import Engine, Ticket
from coatcheck.core.remote.result_store import remote_fingerprint, remote_payload
from coatcheck.core.upstream_calls import (
    RawHeader,
    UpstreamAnswer,
    decode_answer,
    encode_call,
    kept_headers,
    upstream_call,
)
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT, EndpointSpec, Matched, ServiceSpec
from coatcheck.domain.errors import (
    EndpointNotFound,
    IdempotencyKeyInUse,
    InvalidBody,
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
from coatcheck.encoding import encode
from coatcheck.http.bodies import check_content_type, read_json
from coatcheck.http.gate import check_scope
from coatcheck.http.job_resource import (
    IDEMPOTENCY_PARAMETERS,
    PLAN_INACTIVE,
    TICKET_HEADERS,
    check_mismatch,
    left_out,
    replay_headers,
)
from coatcheck.http.parameters import (
    DELAY_PARAMETER,
    WEBHOOK_PARAMETERS,
    Preferences,
    WebhookUrls,
    anonymous_key,
    names_webhooks,
    read_delay,
    read_idempotency_key,
    read_preferences,
    read_webhook_urls,
)
from coatcheck.http.problems import method_not_allowed, problem
from coatcheck.http.request import Request
from coatcheck.http.response import JSON, SANDBOXED, RawHeaders, Response, StreamResponse
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
from coatcheck.http.watching import WAIT_PARAMETERS, JobLinks
from coatcheck.products.gateway import schemas
from coatcheck.products.gateway.jobs import BASE, GatewayJobs, endpoint_ref, job_links, may_see

_TYPES: Final[Mapping[str, type]] = {"integer": int, "number": float, "boolean": bool}


def python_payload(
    spec: EndpointSpec, body: bytes, params: Mapping[str, str], query: Mapping[str, str]
) -> bytes:
    """The payload of a Python function's job. Raises InvalidBody or InvalidParameter."""
    value = read_json(body) if body else {}
    if not params and not query:
        return body or b"{}"
    if not isinstance(value, dict):
        raise InvalidBody(
            "The body must be an object, because the path or the query adds fields to it."
        )
    for place, fields in (("path", params), ("query", query)):
        for name, text in fields.items():
            if name in value:
                raise InvalidParameter(
                    name, "was given twice: in the body, the path or the query", place
                )
            value[name] = _typed(spec, name, text, place)
    return encode(value)


def remote_input(
    spec: EndpointSpec, body: bytes, params: Mapping[str, str], query: Mapping[str, str]
) -> bytes:
    """The input that a remote gets: JSON, made as for a Python function.

    Raises InvalidBody or InvalidParameter.
    """
    given = python_payload(spec, body, params, query)
    if _takes_objects_only(spec) and not given.lstrip().startswith(b"{"):
        raise InvalidBody("The body must be an object, because the remote gets additional fields.")
    return given


def _takes_objects_only(spec: EndpointSpec) -> bool:
    """Whether the adapter adds fields to the input: see ``remotes/payloads.py``."""
    assert spec.remote is not None
    definition = spec.remote.definition
    return definition["adapter"] == "http" or bool(definition.get("marks"))


def _typed(spec: EndpointSpec, name: str, text: str, place: str) -> Any:
    """A field of the path or the query, converted to the type of the endpoint's argument."""
    kind = spec.parameters.get(name, "string")
    target_type = _TYPES.get(kind)
    if "\0" in text:
        raise InvalidParameter(name, "contains NUL", place)
    if target_type is None:
        return text
    try:
        value: Any = msgspec.convert(text, target_type, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidParameter(name, f"must be {kind}", place) from error
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidParameter(name, "must be a finite number", place)
    return value


_SLASHES: Final = re.compile(r"[/\\]")
_NOT_CACHED: Final = (b"cache-control", b"no-store")
"""Every call is a job, so no cache may answer in our place."""
_NO_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


def upstream_payload(
    spec: EndpointSpec, method: str, path: str, request: Request, body: bytes, *, own_wait: bool
) -> bytes:
    """The payload of the job that repeats the request to the upstream.

    ``own_wait``: ``?wait`` is a parameter of ours and is not forwarded.
    """
    assert spec.target is not None
    _check_path(path)
    url = spec.target.url.rstrip("/") + path
    query = _query_string(request, own_wait=own_wait)
    return encode_call(
        upstream_call(
            url=f"{url}?{query}" if query else url,
            method=method,
            headers=request.scope["headers"],
            body=body,
            target=spec.target,
        )
    )


def upstream_fingerprint(
    spec: EndpointSpec, method: str, path: str, request: Request, body: bytes
) -> bytes:
    """Identifies a request for idempotency. Headers are left out: trace headers always differ."""
    query = _query_string(request, own_wait=True)
    return "\0".join([spec.queue_key, method, path, query, ""]).encode() + body


async def reproduced(
    engine: Engine, view: JobView, headers: RawHeaders
) -> Response | StreamResponse:
    """The upstream's answer, repeated byte for byte."""
    assert view.result is not None
    answer = decode_answer(view.result)
    headers = [*response_headers(answer), *headers]
    body = answer.body()
    if body is not None:
        return Response(answer.status, b"" if answer.status in _NO_BODY else body, headers)
    for artifact in await engine.artifacts(view.id, org=view.org):
        if artifact.name == answer.artifact:
            length = (b"content-length", b"%d" % artifact.size)
            return StreamResponse(answer.status, engine.read_artifact(artifact), [*headers, length])
    raise NotFound


def response_headers(answer: UpstreamAnswer) -> list[RawHeader]:
    """The headers to repeat to a synchronous caller, names in lower case, without a length.

    The answer of a tenant's upstream appears under our host name, so these headers forbid a browser
    to run anything in it. The stored headers are filtered again: they may have been stored before
    the filter left one of them out.
    """
    stored = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    own = [(name.encode(), value.encode("latin-1")) for name, value in kept_headers(stored)]
    return [*own, _NOT_CACHED, *SANDBOXED]


def _check_path(path: str) -> None:
    """Refuse paths that lead out of the upstream's base path, however the upstream parses them.

    Some servers decode an escaped slash before they split the path, treat a backslash as a slash,
    or cut off everything after a semicolon.
    """
    for segment in _SLASHES.split(unquote(path)):
        if segment.partition(";")[0] in (".", ".."):
            raise InvalidParameter("path", "must not contain . or .. as a segment", "path")


def _query_string(request: Request, *, own_wait: bool) -> str:
    query = str(request.scope["query_string"], "latin-1")
    if not own_wait or "wait" not in query:
        return query
    return "&".join(field for field in query.split("&") if not field.startswith("wait="))


_LANES: Final = {lane.value: lane for lane in Lane}
_WAIT: Final = "wait"
_SHOWN_PATHS: Final = 10


class _ResolvedCall(NamedTuple):
    """A request's caller and the endpoint that it names."""

    principal: Principal
    service: ServiceSpec
    matched: Matched
    method: str
    path: str


class _OtherMethods(Exception):
    """The path has an endpoint, but not for the request's method."""

    def __init__(self, methods: Sequence[str]) -> None:
        super().__init__()
        self.methods = methods


class GatewaySubmitRoutes:
    """The submit routes and the synchronous route."""

    def __init__(self, jobs: GatewayJobs) -> None:
        self._jobs = jobs

    async def submit(self, request: Request) -> Response | StreamResponse:
        """POST .../async/{path}: answers as soon as the job is stored."""
        given = request.header(b"x-hsl-target-method")
        method = "POST" if given is None else given
        try:
            call = await self._resolve(request, method.upper())
        except _OtherMethods as other:
            raise InvalidParameter(
                "X-HSL-Target-Method",
                f"the endpoint does not accept {method[:20]}; it accepts "
                + ", ".join(other.methods),
                "header",
            ) from None
        if not call.matched.spec.async_eligible:
            raise NotAsyncEligible("This endpoint accepts synchronous calls only.")
        preferences = read_preferences(request)
        delay = read_delay(request)
        ticket, lane = await self._submit(request, call, delay, own_wait=True)
        known = await self._known(request, call, ticket)
        check_mismatch(ticket, preferences)
        links, view = await self._collect(request, call, ticket, known, preferences.wait)
        return await self._jobs.ticket_response(
            ticket,
            preferences,
            links,
            kind=_kind(request, call.matched.spec),
            endpoint=call.matched.spec.engine_endpoint,
            lane=lane,
            view=view,
            delay=delay,
        )

    async def request(self, request: Request) -> Response | StreamResponse:
        """ANY .../{path}: submits as well, and answers with the result if it comes in time."""
        try:
            call = await self._resolve(
                request, "GET" if request.method == "HEAD" else request.method
            )
        except _OtherMethods as other:
            return method_not_allowed(request, other.methods)
        spec = call.matched.spec
        preferences = read_preferences(request, in_query=False)
        delay = read_delay(request)
        ticket, lane = await self._submit(request, call, delay, own_wait=False)
        known = await self._known(request, call, ticket)
        check_mismatch(ticket, preferences)
        seconds = _sync_wait(spec, preferences, delay)
        links, view = await self._collect(request, call, ticket, known, seconds)
        if view is not None and view.terminal:
            headers = [*preferences.headers, *replay_headers(ticket)]
            try:
                return await self._result(request, view, links, headers)
            except (TooManyBytesInFlight, ServerBusy):
                view = None  # the work is done: a 429 or 503 would say that it was not
        return await self._jobs.ticket_response(
            ticket,
            preferences,
            links,
            kind=_kind(request, spec),
            endpoint=spec.engine_endpoint,
            lane=lane,
            view=view,
            delay=delay,
        )

    async def _resolve(self, request: Request, method: str) -> _ResolvedCall:
        """Find the caller and the endpoint, and check that the one may call the other.

        Without a credential only open endpoints are visible; anything else answers 401.
        """
        jobs = self._jobs
        org = request.params["org"]
        path = "/" + request.params["path"]
        principal = await jobs.gate.caller(request)
        own = principal is not None and principal.org == org
        service = await jobs.service(org, request.params["service"])
        matched = None
        if service is not None:
            matched = service.match(_version(request), method, path)
        auth = "platform" if matched is None else matched.spec.auth
        if auth == "none":
            principal = principal if own else await jobs.gate.anonymous(org)
        elif principal is None:
            raise Unauthenticated
        elif not own:
            raise NotFound
        assert principal is not None
        request.principal = principal
        check_scope(principal, Scope.SUBMIT)
        request.response_headers = await jobs.gate.count(principal)
        if service is None or matched is None:
            methods = () if service is None else service.methods_for(_version(request), path)
            raise _OtherMethods(methods) if methods else _no_endpoint(service, _version(request))
        if auth == "service_token" and principal.kind != "service":
            raise Unauthenticated
        if matched.spec.is_registered:
            # It may have been registered when the organisation was allowed longer timeouts.
            allowed = matched.spec.within(jobs.gate.timeout_seconds_max(principal))
            matched = matched._replace(spec=allowed)
        return _ResolvedCall(principal, service, matched, method, path)

    async def _submit(
        self, request: Request, call: _ResolvedCall, delay: float, *, own_wait: bool
    ) -> tuple[Ticket, Lane]:
        jobs, spec = self._jobs, call.matched.spec
        lane = _lane(request) or spec.lane
        key = read_idempotency_key(request)
        if key is not None and call.principal.kind == "anonymous":
            key = anonymous_key(key)
        await jobs.check_new_work(request, key)
        webhooks = await self._webhooks(request, call)
        body = await request.body(PAYLOAD_BYTES_MAX)
        timeout = keep_completed = keep_failed = fingerprint_of = None
        if spec.target is not None:
            payload = upstream_payload(
                spec, call.method, call.path, request, body, own_wait=own_wait
            )
            fingerprint_of = upstream_fingerprint(spec, call.method, call.path, request, body)
        else:
            if body:
                check_content_type(request)
            make_input = python_payload if spec.remote is None else remote_input
            payload = make_input(
                spec, body, _decoded(call.matched.params), _query(request, own_wait=own_wait)
            )
            if spec.remote is not None:
                fingerprint_of = remote_fingerprint(spec, payload)
                payload = remote_payload(spec, payload)
        if spec.is_registered:
            timeout = spec.timeout_seconds
            keep_completed, keep_failed = spec.keep_completed_seconds, spec.keep_failed_seconds
        ticket = await jobs.engine.submit(
            spec.engine_endpoint,
            payload,
            org=request.params["org"],
            lane=lane,
            queue_key=spec.queue_key,
            retries=spec.retries,
            idempotency_key=key,
            owner=ANYONE if spec.auth == "none" else call.principal.owner,
            request_id=request.request_id,
            delay=delay or None,
            timeout=timeout,
            keep_completed=keep_completed,
            keep_failed=keep_failed,
            keep_input=None if spec.keep_input else False,
            fingerprint_of=fingerprint_of,
            **webhooks._asdict(),
        )
        request.forget_body()  # frees memory while the caller waits for the result
        return ticket, lane

    async def _webhooks(self, request: Request, call: _ResolvedCall) -> WebhookUrls:
        """The webhook URLs of the request.

        Webhooks are signed in the organisation's name, so anonymous callers cannot ask for them.
        """
        if call.principal.kind == "anonymous" and names_webhooks(request):
            raise Unauthenticated
        return await read_webhook_urls(request, self._jobs.server.receivers, request.params["org"])

    async def _known(self, request: Request, call: _ResolvedCall, ticket: Ticket) -> JobView | None:
        """The job that a known idempotency key names; None if the key was new.

        Raises IdempotencyKeyInUse for a job that the caller may not see. That answer is always the
        same, so that it reveals neither the job's id, nor its payload, nor its progress.
        """
        if ticket.created:
            return None
        org = request.params["org"]
        known = await self._jobs.engine.look(ticket.id, org=org)
        if not may_see(call.principal, known.owner, org):
            raise IdempotencyKeyInUse
        return known

    async def _collect(
        self,
        request: Request,
        call: _ResolvedCall,
        ticket: Ticket,
        known: JobView | None,
        seconds: float | None,
    ) -> tuple[JobLinks, JobView | None]:
        """The paths of the job; and, if ``seconds`` are given, the job once it has ended or
        the time is up.

        A known idempotency key may name a job of another service: its own service's URLs are shown.
        """
        org, service = request.params["org"], call.service.service
        if known is not None:
            ref = endpoint_ref(known)
            if ref is None:
                seconds = None
            else:
                service = ref.service
        links = job_links(org, service, ticket.id)
        if seconds is None:
            return links, None
        return links, await self._jobs.wait(request, ticket.id, org, seconds)

    async def _result(
        self, request: Request, view: JobView, urls: JobLinks, headers: RawHeaders
    ) -> Response | StreamResponse:
        if view.state is State.COMPLETED:
            headers = [urls.link(), *headers]
            if view.endpoint == UPSTREAM_ENDPOINT:
                view = await self._jobs.engine.with_result(view)
                return await reproduced(self._jobs.engine, view, headers)
            if view.result_is_left_out:
                return await self._jobs.server.large_results.response(
                    left_out(view), "result", _unchanged, HTTPStatus.OK, headers
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


async def _unchanged(result: bytes) -> bytes:
    return result


_FAILURES: Final = {
    "invalid_input": HTTPStatus.UNPROCESSABLE_ENTITY,
    "cancelled": HTTPStatus.CONFLICT,
}
"""The status that a synchronous caller gets for a failed job, by error code; else 502."""


def _no_endpoint(service: ServiceSpec | None, version: int | None) -> EndpointNotFound:
    """An error that lists what exists: paths are the first thing that a new user mistypes."""
    if service is None:
        return EndpointNotFound(
            "There is no such service. A Python service exists once a worker that serves it has "
            "started; one with an http upstream or a remote exists once it is registered."
        )
    requested = service.versions.get(service.latest if version is None else version)
    if requested is None:
        known = ", ".join(str(number) for number in sorted(service.versions))
        return EndpointNotFound(f"The service has no such version; it has {known}.")
    paths = [f"{spec.method} {spec.path}" for spec in requested.endpoints]
    more = f" and {len(paths) - _SHOWN_PATHS} more" if len(paths) > _SHOWN_PATHS else ""
    return EndpointNotFound(
        f"The service has no such path; it has {', '.join(paths[:_SHOWN_PATHS])}{more}."
    )


def _kind(request: Request, spec: EndpointSpec) -> str:
    return kind_of(request.params["org"], spec.engine_endpoint, spec.queue_key)


def _sync_wait(spec: EndpointSpec, preferences: Preferences, delay: float) -> float | None:
    """How long a synchronous call waits; None if it does not, or if the job cannot end by then."""
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


def routes(jobs: GatewayJobs) -> list[Route]:
    """The routes that submit jobs."""
    submitting = GatewaySubmitRoutes(jobs)
    routes = []
    for base, suffix in ((BASE, ""), (BASE + "/v{version}", "_version")):
        routes.append(
            Route(
                methods=["POST"],
                path=base + "/async/{path:path}",
                name="submit" + suffix,
                summary="Submit a job.",
                description="Answers as soon as the job is stored, with the URLs to read it. "
                "The body and the query are the endpoint's input.",
                handler=submitting.submit,
                access=Access.HANDLER,
                parameters=[*_PARAMETERS, *WAIT_PARAMETERS, _TARGET_METHOD],
                body=_INPUT,
                any_query=True,
                responses=[_COMPLETED, _TICKET, PLAN_INACTIVE, _KEY_TAKEN, _MISMATCH],
                tag="gateway",
            )
        )
        routes.append(
            Route(
                methods=EVERY_METHOD,
                path=base + "/{path:path}",
                name="call" + suffix,
                summary="Call an endpoint and wait for its result.",
                description="Submits a job, and answers with the endpoint's own result if it comes "
                "within the endpoint's sync timeout; else with 202, as for a submitted job.",
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
                    PLAN_INACTIVE,
                    _MISMATCH,
                    _OTHER_METHODS,
                    ResponseSpec.problem(
                        HTTPStatus.CONFLICT,
                        "The job was cancelled; or another caller uses the idempotency key "
                        "(`idempotency_key_in_use`).",
                    ),
                    ResponseSpec.problem(HTTPStatus.BAD_GATEWAY, "The job failed."),
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
        "The lane. The default is the endpoint's lane.",
        {"type": "string", "enum": [lane.value for lane in Lane]},
    ),
)
_TARGET_METHOD: Final = Parameter(
    "X-HSL-Target-Method",
    "header",
    "The endpoint's method, if it is not POST.",
    {"type": "string", "enum": list(EVERY_METHOD)},
)
_INPUT: Final = RequestBody("The endpoint's input.", schema={}, required=False)
_TICKET: Final = ResponseSpec(
    HTTPStatus.ACCEPTED, "The job is stored.", schemas.GatewayTicket, headers=TICKET_HEADERS
)
_COMPLETED: Final = ResponseSpec(
    HTTPStatus.OK,
    "The job ended within the requested wait.",
    schemas.GatewayJob,
    headers=TICKET_HEADERS,
)
_OTHER_METHODS: Final = ResponseSpec.problem(
    HTTPStatus.METHOD_NOT_ALLOWED,
    "The endpoint accepts other methods.",
    headers={"Allow": "The methods that it accepts."},
)
_KEY_TAKEN: Final = ResponseSpec.problem(
    HTTPStatus.CONFLICT,
    "The idempotency key names a job that the caller may not see (`idempotency_key_in_use`).",
)
_MISMATCH: Final = ResponseSpec.problem(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "The idempotency key was used with another payload, and the caller asked for strict handling; "
    "or the input is not valid for the endpoint; or the webhook's URL may not be called.",
)
