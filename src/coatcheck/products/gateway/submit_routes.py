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
from coatcheck.domain.identity import ANYONE, Principal, Scope
from coatcheck.domain.job import JobView
from coatcheck.domain.lanes import Lane
from coatcheck.domain.limits import PAYLOAD_BYTES_MAX
from coatcheck.domain.states import State
from coatcheck.http.delay_header import DELAY_PARAMETER, read_delay
from coatcheck.http.gate import check_scope
from coatcheck.http.idempotency import of_strangers, read_idempotency_key
from coatcheck.http.job_responses import (
    IDEMPOTENCY_PARAMETERS,
    TICKET_HEADERS,
    WAIT_PARAMETERS,
    JobUrls,
    check_mismatch,
    may_see,
    replay_headers,
    stored,
)
from coatcheck.http.json_bodies import check_content_type
from coatcheck.http.prefer_header import Preferences, read_preferences
from coatcheck.http.problems import MEDIA_TYPE, Problem, method_not_allowed, problem
from coatcheck.http.request import Call
from coatcheck.http.response import JSON, RawHeaders, Reply, StreamReply
from coatcheck.http.retry_after import kind_of
from coatcheck.http.routing import (
    EVERY_METHOD,
    Access,
    Answer,
    Held,
    Operation,
    Parameter,
    RequestBody,
)
from coatcheck.http.webhook_headers import (
    WEBHOOK_PARAMETERS,
    WebhookUrls,
    names_webhooks,
    read_webhook_urls,
)
from coatcheck.products.gateway import schemas as words
from coatcheck.products.gateway.context import Scene
from coatcheck.products.gateway.forwarding import reproduced, upstream_fingerprint, upstream_payload
from coatcheck.products.gateway.naming import name_of
from coatcheck.products.gateway.payloads import python_payload, remote_input
from coatcheck.products.gateway.presenter import GatewayVoice

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


class Submitting:
    """The submit routes and the synchronous route."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def submit(self, call: Call) -> Reply | StreamReply:
        """POST .../async/{path}: answered as soon as the job is safe."""
        given = call.header(b"x-hsl-target-method")
        method = "POST" if given is None else given
        try:
            aim = await self._aim(call, method.upper())
        except _OtherMethods as other:
            raise InvalidParameter(
                "X-HSL-Target-Method",
                f"the endpoint does not take {method[:20]}; it takes {', '.join(other.methods)}",
                "header",
            ) from None
        if not aim.matched.spec.async_eligible:
            raise NotAsyncEligible("This endpoint takes synchronous calls only.")
        preferences = read_preferences(call)
        delay = read_delay(call)
        ticket, lane = await self._hand_in(call, aim, delay, own_wait=True)
        known = await self._known(call, aim, ticket)
        check_mismatch(ticket, preferences)
        voice, view = await self._collect(call, aim, ticket, known, preferences.wait)
        return await self._scene.answers.submitted(
            ticket,
            voice,
            kind=_kind(call, aim.matched.spec),
            lane=lane,
            preferences=preferences,
            view=view,
            delay=delay,
        )

    async def call(self, call: Call) -> Reply | StreamReply:
        """ANY .../{path}: the same, and the answer is the result if it comes in time."""
        try:
            aim = await self._aim(call, "GET" if call.method == "HEAD" else call.method)
        except _OtherMethods as other:
            return method_not_allowed(call, other.methods)
        spec = aim.matched.spec
        preferences = read_preferences(call, in_query=False)
        delay = read_delay(call)
        ticket, lane = await self._hand_in(call, aim, delay, own_wait=False)
        known = await self._known(call, aim, ticket)
        check_mismatch(ticket, preferences)
        seconds = _patience(spec, preferences, delay)
        voice, view = await self._collect(call, aim, ticket, known, seconds)
        if view is not None and view.terminal:
            headers = [*preferences.headers, *replay_headers(ticket)]
            try:
                return await self._result(call, view, voice.urls(ticket.id), headers)
            except (TooManyBytesInFlight, ServerBusy):
                view = None  # the work is done: a ticket, no refusal that means "not done"
        return await self._scene.answers.submitted(
            ticket,
            voice,
            kind=_kind(call, spec),
            lane=lane,
            preferences=preferences,
            view=view,
            delay=delay,
        )

    async def _aim(self, call: Call, method: str) -> _Aim:
        """Who may call what. A caller without a credential learns of open endpoints only."""
        scene = self._scene
        org = call.params["org"]
        path = "/" + call.params["path"]
        principal = await scene.gate.caller(call)
        own = principal is not None and principal.org == org
        service = await scene.service(org, call.params["service"])
        matched = None
        if service is not None:
            matched = service.match(_version(call), method, path)
        auth = "platform" if matched is None else matched.spec.auth
        if auth == "none":
            principal = principal if own else await scene.gate.anonymous(org)
        elif principal is None:
            raise Unauthenticated
        elif not own:
            raise NotFound
        assert principal is not None
        call.principal = principal
        check_scope(principal, Scope.SUBMIT)
        call.reply_headers = await scene.gate.count(principal)
        if service is None or matched is None:
            methods = () if service is None else service.methods_for(_version(call), path)
            raise _OtherMethods(methods) if methods else _no_endpoint(service, _version(call))
        if auth == "service_token" and principal.kind != "service":
            raise Unauthenticated
        if matched.spec.is_registered:
            # Perhaps when its organisation was allowed more.
            allowed = matched.spec.within(scene.gate.timeout_seconds_max(principal))
            matched = matched._replace(spec=allowed)
        return _Aim(principal, service, matched, method, path)

    async def _hand_in(
        self, call: Call, aim: _Aim, delay: float, *, own_wait: bool
    ) -> tuple[Ticket, Lane]:
        scene, spec = self._scene, aim.matched.spec
        lane = _lane(call) or spec.lane
        key = read_idempotency_key(call)
        if key is not None and aim.principal.kind == "anonymous":
            key = of_strangers(key)
        knows = partial(self._scene.engine.knows_key, org=call.params["org"])
        await self._scene.gate.check_unless_known(aim.principal, key, knows)
        webhooks = await self._webhooks(call, aim)
        body = await call.body(PAYLOAD_BYTES_MAX)
        timeout = keep_completed = keep_failed = fingerprint_of = None
        if spec.target is not None:
            payload = upstream_payload(spec, aim.method, aim.path, call, body, own_wait=own_wait)
            fingerprint_of = upstream_fingerprint(spec, aim.method, aim.path, call, body)
        else:
            if body:
                check_content_type(call)
            make_input = python_payload if spec.remote is None else remote_input
            payload = make_input(
                spec, body, _decoded(aim.matched.params), _query(call, own_wait=own_wait)
            )
            if spec.remote is not None:
                fingerprint_of = remote_fingerprint(spec, payload)
                payload = remote_payload(spec, payload)
        if spec.is_registered:
            timeout = spec.timeout_seconds
            keep_completed, keep_failed = spec.keep_completed_seconds, spec.keep_failed_seconds
        ticket = await scene.engine.submit(
            spec.engine_endpoint,
            payload,
            org=call.params["org"],
            lane=lane,
            flow=spec.flow,
            retries=spec.retries,
            idempotency_key=key,
            owner=ANYONE if spec.auth == "none" else aim.principal.owner,
            request_id=call.request_id,
            delay=delay or None,
            timeout=timeout,
            keep_completed=keep_completed,
            keep_failed=keep_failed,
            keep_input=None if spec.keep_input else False,
            fingerprint_of=fingerprint_of,
            **webhooks._asdict(),
        )
        call.forget_body()  # the job has it, and its result may be waited for
        return ticket, lane

    async def _webhooks(self, call: Call, aim: _Aim) -> WebhookUrls:
        """Who is to be told. What is signed in the organisation's name, strangers cannot order."""
        if aim.principal.kind == "anonymous" and names_webhooks(call):
            raise Unauthenticated
        return await read_webhook_urls(call, self._scene.receivers, call.params["org"])

    def _voice(self, call: Call, aim: _Aim) -> GatewayVoice:
        service = aim.service
        return GatewayVoice(
            call.params["org"], service.service, service, self._scene.engine.stall_reason
        )

    async def _known(self, call: Call, aim: _Aim, ticket: Ticket) -> JobView | None:
        """The job that a known idempotency key names; None if the key was free.

        Raises IdempotencyKeyInUse for a job that the caller may not see: always the same answer,
        so that it tells neither which job it is, nor what was sent with it, nor how far it is.
        """
        if ticket.created:
            return None
        org = call.params["org"]
        known = await self._scene.engine.look(ticket.id, org=org)
        if not may_see(aim.principal, known, org):
            raise IdempotencyKeyInUse
        return known

    async def _collect(
        self,
        call: Call,
        aim: _Aim,
        ticket: Ticket,
        known: JobView | None,
        seconds: float | None,
    ) -> tuple[GatewayVoice, JobView | None]:
        """How the job is shown; and the job once it has ended or the time is up, if it is waited
        for. A known idempotency key may name a job of another service: it is shown where it is
        found.
        """
        scene, org, voice = self._scene, call.params["org"], self._voice(call, aim)
        if known is not None:
            named = name_of(known)
            if named is None:
                seconds = None
            elif named.service != aim.service.service:
                voice = await scene.voice(org, named.service)
        if seconds is None:
            return voice, None
        return voice, await scene.answers.held_look(call, ticket.id, org, seconds)

    async def _result(
        self, call: Call, view: JobView, urls: JobUrls, headers: RawHeaders
    ) -> Reply | StreamReply:
        if view.state is State.COMPLETED:
            headers = [urls.link(), *headers]
            if view.endpoint == UPSTREAM_ENDPOINT:
                view = await self._scene.engine.with_result(view)
                return await reproduced(self._scene.engine, view, headers)
            if view.result_is_left_out:
                large = self._scene.answers.large
                return await large.reply(stored(view), "result", _as_it_is, HTTPStatus.OK, headers)
            assert view.result is not None
            return Reply(HTTPStatus.OK, view.result, [JSON, *headers])
        code = view.error_code or "job_failed"
        return problem(
            call,
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


def _kind(call: Call, spec: EndpointSpec) -> str:
    return kind_of(call.params["org"], spec.engine_endpoint, spec.flow)


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


def _query(call: Call, *, own_wait: bool) -> Mapping[str, str]:
    if own_wait and _WAIT in call.query:
        return {name: text for name, text in call.query.items() if name != _WAIT}
    return call.query


def _version(call: Call) -> int | None:
    return int(call.params["version"]) if "version" in call.params else None


def _lane(call: Call) -> Lane | None:
    given = call.header(b"x-hsl-lane")
    if given is None:
        return None
    lane = _LANES.get(given.lower())
    if lane is None:
        raise UnknownLane(f"There is no lane {given[:40]!r}; there are {', '.join(_LANES)}.")
    return lane


def operations(scene: Scene) -> list[Operation]:
    """The routes by which work is handed in."""
    submitting = Submitting(scene)
    routes = []
    for base, suffix in ((BASE, ""), (BASE + "/v{version}", "_version")):
        routes.append(
            Operation(
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
                answers=[_COMPLETED, _TICKET, _PAYMENT, _KEY_TAKEN, _MISMATCH],
                tag="gateway",
            )
        )
        routes.append(
            Operation(
                methods=EVERY_METHOD,
                path=base + "/{path:path}",
                name="call" + suffix,
                summary="Call an endpoint and wait for its result.",
                description="The same as handing a job in, and the answer is the endpoint's own "
                "if it comes within the endpoint's sync timeout; else 202, as for a job.",
                handler=submitting.call,
                access=Access.HANDLER,
                parameters=[*_PARAMETERS, WAIT_PARAMETERS[1]],
                held=Held.UNLESS_ASYNC,
                body=_INPUT,
                any_query=True,
                answers=[
                    Answer(HTTPStatus.OK, "The endpoint's result.", schema={}, media_type="*/*"),
                    _TICKET,
                    _PAYMENT,
                    _MISMATCH,
                    _OTHER_METHODS,
                    Answer(
                        HTTPStatus.CONFLICT,
                        "It was cancelled; or another caller uses the idempotency key "
                        "(`idempotency_key_in_use`).",
                        Problem,
                        MEDIA_TYPE,
                    ),
                    Answer(HTTPStatus.BAD_GATEWAY, "The job failed.", Problem, MEDIA_TYPE),
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
_TICKET: Final = Answer(
    HTTPStatus.ACCEPTED, "The job is safe.", words.Ticket, headers=TICKET_HEADERS
)
_COMPLETED: Final = Answer(
    HTTPStatus.OK,
    "The job has ended within the time that the caller was willing to wait.",
    words.Job,
    headers=TICKET_HEADERS,
)
_PAYMENT: Final = Answer(
    HTTPStatus.PAYMENT_REQUIRED, "The organisation's plan is not active.", Problem, MEDIA_TYPE
)
_OTHER_METHODS: Final = Answer(
    HTTPStatus.METHOD_NOT_ALLOWED,
    "The endpoint takes other methods.",
    Problem,
    MEDIA_TYPE,
    headers={"Allow": "The methods that it takes."},
)
_KEY_TAKEN: Final = Answer(
    HTTPStatus.CONFLICT,
    "The idempotency key names a job that the caller may not see (`idempotency_key_in_use`).",
    Problem,
    MEDIA_TYPE,
)
_MISMATCH: Final = Answer(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "The idempotency key is known with another payload, and the caller was strict; or the input "
    "does not fit the endpoint; or the webhook's URL may not be called.",
    Problem,
    MEDIA_TYPE,
)
