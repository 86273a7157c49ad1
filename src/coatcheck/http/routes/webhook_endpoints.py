"""The routes of webhooks: registered endpoints and their secrets, and the signing secret of webhook
URLs that submissions name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from coatcheck.core.webhooks import SigningSecret, Webhooks
from coatcheck.domain.errors import FieldIssue, InvalidInput
from coatcheck.domain.tenants import Scope
from coatcheck.domain.webhooks import DESCRIPTION_CHARACTERS_MAX, EVENTS, MANY_EVENTS, EndpointView
from coatcheck.egress import Guard
from coatcheck.egress.urls import URL_CHARACTERS_MAX
from coatcheck.http.bodies import read_body, read_optional_body
from coatcheck.http.parameters import check_webhook_url
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response, raw_header
from coatcheck.http.routes import webhook_deliveries
from coatcheck.http.routes.webhook_deliveries import (
    PATH,
    TAG,
    WebhookDeliveryBody,
    endpoint_parameter,
    shown_delivery,
)
from coatcheck.http.routing import RequestBody, ResponseSpec, Route

_BODY_BYTES_MAX: Final = 16 * 1024
_NO_STORE: Final = raw_header("Cache-Control", "no-store")

_Url = Annotated[
    str, Meta(min_length=1, max_length=URL_CHARACTERS_MAX, extra_json_schema={"format": "uri"})
]
_EVENT_WORDS: Final = (*MANY_EVENTS, *sorted(EVENTS))
_Event = Annotated[str, Meta(extra_json_schema={"enum": list(_EVENT_WORDS)})]
_Events = Annotated[list[_Event], Meta(min_length=1, max_length=len(_EVENT_WORDS))]
_Description = Annotated[str, Meta(max_length=DESCRIPTION_CHARACTERS_MAX)]


class NewWebhookEndpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """A new endpoint. Without ``events`` it receives the end of every job and group of jobs.

    ``pulled``: the endpoint has no URL. Its owner fetches the messages (``coatcheck listen``).
    """

    url: _Url | None = None
    events: _Events | None = None
    description: _Description = ""
    pulled: bool = False


class WebhookEndpointChanges(Struct, frozen=True, forbid_unknown_fields=True):
    """The properties to change. Others stay the same."""

    url: _Url | UnsetType = UNSET
    events: _Events | UnsetType = UNSET
    description: _Description | UnsetType = UNSET


class WebhookEndpointBody(Struct, frozen=True):
    """An endpoint. ``status`` is ``disabled`` once the receiver has answered 410."""

    id: str
    url: str | None
    events: list[str]
    description: str
    status: Literal["active", "paused", "disabled"]
    pulled: bool
    created_at: datetime
    paused_at: datetime | None
    disabled_at: datetime | None


class CreatedWebhookEndpoint(WebhookEndpointBody, frozen=True):
    """A new endpoint, with the secret that signs its messages."""

    secret: str


class WebhookEndpoints(Struct, frozen=True):
    """All endpoints of an organisation, the oldest first."""

    items: list[WebhookEndpointBody]


class EndpointSecretView(Struct, frozen=True):
    """The signing secret. After a rotation ``previous`` stays valid until it expires.

    ``generation`` counts the secrets. A rotation that names it is made only once.
    """

    secret: str
    generation: int
    previous: str | None = None
    previous_expires_at: datetime | None = None


class Rotation(Struct, frozen=True, forbid_unknown_fields=True):
    """``generation`` is that of the secret to replace; by default the present one."""

    generation: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


class _Endpoints:
    """The handlers."""

    def __init__(self, webhooks: Webhooks, receivers: Guard) -> None:
        self._webhooks = webhooks
        self._receivers = receivers

    async def create(self, request: Request) -> Response:
        new = await read_body(request, NewWebhookEndpoint, _BODY_BYTES_MAX)
        if new.pulled != (new.url is None):
            issue = "is required" if new.url is None else "is not allowed together with pulled"
            raise InvalidInput([FieldIssue("url", issue)])
        _check_events(new.events)
        await self._check(request, new.url)
        org = request.principal.org
        created = await self._webhooks.create_endpoint(
            org, new.url, new.events or ["*"], new.description, pulled=new.pulled
        )
        secret = await self._webhooks.secret(org, created.id)
        shown = CreatedWebhookEndpoint(
            **msgspec.structs.asdict(_shown(created)), secret=secret.secret
        )
        location = f"{PATH.format(org=org)}/endpoints/{shown.id}"
        return json_response(
            shown, HTTPStatus.CREATED, [raw_header("Location", location), _NO_STORE]
        )

    async def list_all(self, request: Request) -> Response:
        found = await self._webhooks.list_endpoints(request.principal.org)
        return json_response(WebhookEndpoints([_shown(each) for each in found]))

    async def show(self, request: Request) -> Response:
        return json_response(_shown(await self._webhooks.get_endpoint(*_named(request))))

    async def change(self, request: Request) -> Response:
        changes = await read_body(request, WebhookEndpointChanges, _BODY_BYTES_MAX)
        org, endpoint = _named(request)
        url = None if isinstance(changes.url, UnsetType) else changes.url
        events = None if isinstance(changes.events, UnsetType) else changes.events
        description = changes.description
        _check_events(events)
        if url is not None:
            if (await self._webhooks.get_endpoint(org, endpoint)).pulled:
                raise InvalidInput([FieldIssue("url", "is not allowed for a pulled endpoint")])
            await self._check(request, url)
        changed = await self._webhooks.change_endpoint(
            org,
            endpoint,
            url=url,
            events=events,
            description=None if isinstance(description, UnsetType) else description,
        )
        return json_response(_shown(changed))

    async def delete(self, request: Request) -> Response:
        await self._webhooks.delete_endpoint(*_named(request))
        return Response(HTTPStatus.NO_CONTENT)

    async def pause(self, request: Request) -> Response:
        return json_response(_shown(await self._webhooks.pause(*_named(request))))

    async def resume(self, request: Request) -> Response:
        return json_response(_shown(await self._webhooks.resume(*_named(request))))

    async def test(self, request: Request) -> Response:
        sent = await self._webhooks.send_test(*_named(request))
        return json_response(shown_delivery(sent), HTTPStatus.ACCEPTED)

    async def secret(self, request: Request) -> Response:
        return _secret_response(await self._webhooks.secret(*_named(request)))

    async def rotate(self, request: Request) -> Response:
        rotation = await read_optional_body(request, Rotation, _BODY_BYTES_MAX)
        org, endpoint = _named(request)
        generation = rotation.generation
        if generation is None:
            generation = (await self._webhooks.secret(org, endpoint)).generation
        return _secret_response(await self._webhooks.rotate(org, endpoint, generation))

    async def _check(self, request: Request, url: str | None) -> None:
        if url is not None:
            await check_webhook_url("url", url, self._receivers, request.principal.org)


def endpoint_routes(webhooks: Webhooks, receivers: Guard) -> list[Route]:
    """``/api/v1/orgs/{org}/webhooks/endpoints``, for callers with the scope ``admin``."""
    handlers = _Endpoints(webhooks, receivers)
    one = f"{PATH}/endpoints/{{id}}"
    on_any = partial(Route, access=Scope.ADMIN, operable=True, tag=TAG)
    on_all = partial(on_any, path=f"{PATH}/endpoints")
    on_one = partial(on_any, parameters=[endpoint_parameter()])
    shown = ResponseSpec(HTTPStatus.OK, "The endpoint.", WebhookEndpointBody)
    unfit = ResponseSpec.problem(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "The body is invalid (`details` says why), or the URL may not be called (`url_forbidden`).",
    )
    return [
        on_all(
            methods=["POST"],
            name="create_webhook_endpoint",
            summary="Register an endpoint for events of the organisation's jobs.",
            description="It receives events of all jobs, in addition to webhook URLs that "
            "submissions name. `*` means every end of a job or of a group of jobs, `job.*` every "
            "state of a job, and any other kind with `.*` all events of that kind. Failed tasks "
            "are sent only if `task.failed` is named, and jobs that fail with no attempt left "
            "only if `job.alert` is named. An organisation has at most 50 endpoints.",
            handler=handlers.create,
            body=RequestBody("The endpoint.", NewWebhookEndpoint),
            responses=[
                ResponseSpec(
                    HTTPStatus.CREATED,
                    "The endpoint, and its secret.",
                    CreatedWebhookEndpoint,
                    headers={"Location": "The endpoint's URL."},
                ),
                ResponseSpec.problem(
                    HTTPStatus.CONFLICT, "The organisation has the maximum number of endpoints."
                ),
                unfit,
            ],
        ),
        on_all(
            methods=["GET"],
            name="list_webhook_endpoints",
            summary="List the organisation's endpoints.",
            handler=handlers.list_all,
            responses=[ResponseSpec(HTTPStatus.OK, "All endpoints.", WebhookEndpoints)],
        ),
        on_one(
            methods=["GET"],
            path=one,
            name="get_webhook_endpoint",
            summary="Show an endpoint.",
            handler=handlers.show,
            responses=[shown],
        ),
        on_one(
            methods=["PATCH"],
            path=one,
            name="change_webhook_endpoint",
            summary="Change an endpoint's URL, events or description.",
            description="Pending messages are sent to the new URL. A change enables an endpoint "
            "that had answered 410.",
            handler=handlers.change,
            body=RequestBody("The properties to change.", WebhookEndpointChanges),
            responses=[shown, unfit],
        ),
        on_one(
            methods=["DELETE"],
            path=one,
            name="delete_webhook_endpoint",
            summary="Delete an endpoint.",
            description="Pending messages are not sent any more; the list of deliveries says so.",
            handler=handlers.delete,
            responses=[ResponseSpec(HTTPStatus.NO_CONTENT, "The endpoint is deleted.", empty=True)],
        ),
        on_one(
            methods=["POST"],
            path=f"{one}/pause",
            name="pause_webhook_endpoint",
            summary="Pause an endpoint.",
            description="Messages are kept until the endpoint is resumed. Pausing it again has no "
            "effect.",
            handler=handlers.pause,
            responses=[shown],
        ),
        on_one(
            methods=["POST"],
            path=f"{one}/resume",
            name="resume_webhook_endpoint",
            summary="Resume an endpoint.",
            description="Messages that were kept while it was paused are sent now. This enables an "
            "endpoint that had answered 410.",
            handler=handlers.resume,
            responses=[shown],
        ),
        on_one(
            methods=["POST"],
            path=f"{one}/test",
            name="test_webhook_endpoint",
            summary="Send an endpoint a `webhook.test`.",
            description="It is signed, retried and logged as any other message, and sent whatever "
            "the endpoint's events are.",
            handler=handlers.test,
            responses=[
                ResponseSpec(HTTPStatus.ACCEPTED, "The test will be sent.", WebhookDeliveryBody)
            ],
        ),
        on_one(
            methods=["GET"],
            path=f"{one}/secret",
            name="webhook_endpoint_secret",
            summary="Show the secret that signs an endpoint's messages.",
            handler=handlers.secret,
            responses=[ResponseSpec(HTTPStatus.OK, "The secret.", EndpointSecretView)],
        ),
        on_one(
            methods=["POST"],
            path=f"{one}/secret/rotate",
            name="rotate_webhook_endpoint_secret",
            summary="Rotate that secret.",
            description="The previous secret stays valid for 24 hours: every message then has two "
            "signatures, and a receiver may know either secret. A rotation that names the "
            "`generation` it replaces can safely be sent again: it is made once.",
            handler=handlers.rotate,
            body=RequestBody("The secret to replace.", Rotation, required=False),
            responses=[
                ResponseSpec(
                    HTTPStatus.OK, "The new secret and the previous one.", EndpointSecretView
                ),
                unfit,
            ],
        ),
    ]


def _named(request: Request) -> tuple[str, str]:
    return request.principal.org, request.params["id"]


def _check_events(names: Sequence[str] | None) -> None:
    issues = [
        FieldIssue(f"events[{number}]", f"must be one of {', '.join(_EVENT_WORDS)}")
        for number, name in enumerate(names or ())
        if name not in _EVENT_WORDS
    ]
    if issues:
        raise InvalidInput(issues)


def _secret_response(secret: SigningSecret) -> Response:
    view = EndpointSecretView(
        secret.secret, secret.generation, secret.previous, secret.previous_until
    )
    return json_response(view, headers=[_NO_STORE])


def _shown(view: EndpointView) -> WebhookEndpointBody:
    status: Literal["active", "paused", "disabled"] = "active"
    if view.paused_at is not None:
        status = "paused"
    elif view.disabled_at is not None:
        status = "disabled"
    return WebhookEndpointBody(
        id=view.id,
        url=view.url or None,
        events=list(view.events),
        description=view.description,
        status=status,
        pulled=view.pulled,
        created_at=view.created_at,
        paused_at=view.paused_at,
        disabled_at=view.disabled_at,
    )


class SecretView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The signing secret. After a rotation ``previous`` stays valid until it expires."""

    secret: str
    previous: str | None = None
    previous_expires_at: datetime | None = None


class _Secrets:
    """The handlers."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    async def show(self, request: Request) -> Response:
        return _shown_secret(await self._webhooks.secret(request.principal.org))

    async def rotate(self, request: Request) -> Response:
        org = request.principal.org
        before = await self._webhooks.secret(org)
        return _shown_secret(await self._webhooks.rotate(org, None, before.generation))


def _shown_secret(secret: SigningSecret) -> Response:
    view = SecretView(secret.secret, secret.previous, secret.previous_until)
    return json_response(view, headers=[_NO_STORE])


def routes(webhooks: Webhooks, receivers: Guard) -> list[Route]:
    """``/api/v1/orgs/{org}/webhooks``, for callers with the scope ``admin``.

    Without the routes of fetched messages, which need the payloads of all products
    (``routes/webhook_deliveries.py``).
    """
    secrets = _Secrets(webhooks)
    route = partial(Route, access=Scope.ADMIN, operable=True, tag=TAG)
    return [
        route(
            methods=["GET"],
            path=f"{PATH}/secret",
            name="webhook_secret",
            summary="Show the secret that signs webhooks to URLs which submissions name.",
            description="Registered endpoints have separate secrets.",
            handler=secrets.show,
            responses=[ResponseSpec(HTTPStatus.OK, "The secret.", SecretView)],
        ),
        route(
            methods=["POST"],
            path=f"{PATH}/secret/rotate",
            name="rotate_webhook_secret",
            summary="Rotate that secret.",
            description="The previous secret stays valid for 24 hours: every message then has two "
            "signatures, and a receiver may know either secret. After a second rotation within "
            "that time, the oldest secret no longer signs.",
            handler=secrets.rotate,
            responses=[
                ResponseSpec(HTTPStatus.OK, "The new secret and the previous one.", SecretView)
            ],
        ),
        *endpoint_routes(webhooks, receivers),
        *webhook_deliveries.delivery_routes(webhooks),
    ]
