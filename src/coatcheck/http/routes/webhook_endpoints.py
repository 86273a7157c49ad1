"""An organisation's registered webhook endpoints: made, looked at, changed, paused, taken away."""

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
from coatcheck.domain.webhooks import (
    DESCRIPTION_CHARACTERS_MAX,
    EVENTS,
    MANY_EVENTS,
    EndpointView,
)
from coatcheck.egress import Guard
from coatcheck.egress.urls import URL_CHARACTERS_MAX
from coatcheck.http.bodies import read_body, read_optional_body
from coatcheck.http.parameters import check_webhook_url
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response, raw_header
from coatcheck.http.routes.webhook_deliveries import WebhookDeliveryBody, shown_delivery
from coatcheck.http.routes.webhook_parameters import PATH, TAG, endpoint_parameter
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
    """Who is to be told, and of what. Without ``events``: of every end.

    ``pulled``: nobody is posted to; what there is to tell is taken by whoever asks for it.
    """

    url: _Url | None = None
    events: _Events | None = None
    description: _Description = ""
    pulled: bool = False


class WebhookEndpointChanges(Struct, frozen=True, forbid_unknown_fields=True):
    """What shall be otherwise. What is left out stays."""

    url: _Url | UnsetType = UNSET
    events: _Events | UnsetType = UNSET
    description: _Description | UnsetType = UNSET


class WebhookEndpointBody(Struct, frozen=True):
    """Who is told, and of what. ``status`` is ``disabled`` once the receiver has answered 410."""

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
    """One that was just made, with the secret that signs what it is told."""

    secret: str


class WebhookEndpoints(Struct, frozen=True):
    """All endpoints of an organisation, the oldest first."""

    items: list[WebhookEndpointBody]


class EndpointSecretView(Struct, frozen=True):
    """The signing secret. After a rotation ``previous`` stays valid until it expires.

    ``generation`` counts the secrets: name it with a rotation, and the rotation is made once.
    """

    secret: str
    generation: int
    previous: str | None = None
    previous_expires_at: datetime | None = None


class Rotation(Struct, frozen=True, forbid_unknown_fields=True):
    """``generation`` is that of the secret to be replaced; whichever signs, if left out."""

    generation: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None


class _Endpoints:
    """The handlers."""

    def __init__(self, webhooks: Webhooks, receivers: Guard) -> None:
        self._webhooks = webhooks
        self._receivers = receivers

    async def create(self, request: Request) -> Response:
        wanted = await read_body(request, NewWebhookEndpoint, _BODY_BYTES_MAX)
        if wanted.pulled != (wanted.url is None):
            issue = "is needed" if wanted.url is None else "cannot come together with pulled"
            raise InvalidInput([FieldIssue("url", issue)])
        _check_events(wanted.events)
        await self._check(request, wanted.url)
        org = request.principal.org
        created = await self._webhooks.create_endpoint(
            org,
            wanted.url,
            wanted.events or ["*"],
            wanted.description,
            pulled=wanted.pulled,
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
        wanted = await read_body(request, WebhookEndpointChanges, _BODY_BYTES_MAX)
        org, endpoint = _named(request)
        url = None if isinstance(wanted.url, UnsetType) else wanted.url
        events = None if isinstance(wanted.events, UnsetType) else wanted.events
        _check_events(events)
        if url is not None:
            if (await self._webhooks.get_endpoint(org, endpoint)).pulled:
                raise InvalidInput([FieldIssue("url", "is not for an endpoint that is pulled")])
            await self._check(request, url)
        changed = await self._webhooks.change_endpoint(
            org,
            endpoint,
            url=url,
            events=events,
            description=None if isinstance(wanted.description, UnsetType) else wanted.description,
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


def routes(webhooks: Webhooks, receivers: Guard) -> list[Route]:
    """``/api/v1/orgs/{org}/webhooks/endpoints``, for callers with the scope ``admin``."""
    handlers = _Endpoints(webhooks, receivers)
    one = f"{PATH}/endpoints/{{id}}"
    on_any = partial(Route, access=Scope.ADMIN, operable=True, tag=TAG)
    on_all = partial(on_any, path=f"{PATH}/endpoints")
    on_one = partial(on_any, parameters=[endpoint_parameter()])
    shown = ResponseSpec(HTTPStatus.OK, "The endpoint.", WebhookEndpointBody)
    unfit = ResponseSpec(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "The body does not fit (`details` says how), or the URL may not be called "
        "(`url_forbidden`).",
        Problem,
        MEDIA_TYPE,
    )
    return [
        on_all(
            methods=["POST"],
            name="create_webhook_endpoint",
            summary="Register an endpoint that is told of the organisation's jobs.",
            description="Of all jobs, whoever hands them in and whatever they say themselves. "
            "`*` stands for every end of jobs and of groups of jobs, `job.*` for every state of a "
            "job, and any other kind with `.*` for all events of that kind. Tasks that fail are "
            "told of where `task.failed` is named; jobs that fail with no attempt left, where "
            "`job.alert` is. An organisation has at most 50 endpoints.",
            handler=handlers.create,
            body=RequestBody("Who is told, and of what.", NewWebhookEndpoint),
            responses=[
                ResponseSpec(
                    HTTPStatus.CREATED,
                    "The endpoint, and its secret.",
                    CreatedWebhookEndpoint,
                    headers={"Location": "The endpoint's URL."},
                ),
                ResponseSpec(
                    HTTPStatus.CONFLICT,
                    "There are as many endpoints as there may be.",
                    Problem,
                    MEDIA_TYPE,
                ),
                unfit,
            ],
        ),
        on_all(
            methods=["GET"],
            name="list_webhook_endpoints",
            summary="List the organisation's endpoints.",
            handler=handlers.list_all,
            responses=[ResponseSpec(HTTPStatus.OK, "All of them.", WebhookEndpoints)],
        ),
        on_one(
            methods=["GET"],
            path=one,
            name="get_webhook_endpoint",
            summary="Look at an endpoint.",
            handler=handlers.show,
            responses=[shown],
        ),
        on_one(
            methods=["PATCH"],
            path=one,
            name="change_webhook_endpoint",
            summary="Change an endpoint's URL, events or description.",
            description="What waits for it goes to the new URL. One that had answered 410 is told "
            "again from then on.",
            handler=handlers.change,
            body=RequestBody("What shall be otherwise.", WebhookEndpointChanges),
            responses=[shown, unfit],
        ),
        on_one(
            methods=["DELETE"],
            path=one,
            name="delete_webhook_endpoint",
            summary="Take an endpoint away.",
            description="What waits for it is not sent any more, and says so in the log.",
            handler=handlers.delete,
            responses=[ResponseSpec(HTTPStatus.NO_CONTENT, "It is gone.", empty=True)],
        ),
        on_one(
            methods=["POST"],
            path=f"{one}/pause",
            name="pause_webhook_endpoint",
            summary="Send nothing to an endpoint for now.",
            description="What there is to tell is kept until the endpoint is resumed. Pausing it "
            "again is no error.",
            handler=handlers.pause,
            responses=[shown],
        ),
        on_one(
            methods=["POST"],
            path=f"{one}/resume",
            name="resume_webhook_endpoint",
            summary="Send to an endpoint again.",
            description="What was kept while it was paused is sent now. One that had answered 410 "
            "is wanted again by this.",
            handler=handlers.resume,
            responses=[shown],
        ),
        on_one(
            methods=["POST"],
            path=f"{one}/test",
            name="test_webhook_endpoint",
            summary="Send an endpoint a `webhook.test`.",
            description="Signed, retried and logged as every other; whatever its events are.",
            handler=handlers.test,
            responses=[ResponseSpec(HTTPStatus.ACCEPTED, "It is to be sent.", WebhookDeliveryBody)],
        ),
        on_one(
            methods=["GET"],
            path=f"{one}/secret",
            name="webhook_endpoint_secret",
            summary="The secret that signs what an endpoint is told.",
            handler=handlers.secret,
            responses=[ResponseSpec(HTTPStatus.OK, "The secret.", EndpointSecretView)],
        ),
        on_one(
            methods=["POST"],
            path=f"{one}/secret/rotate",
            name="rotate_webhook_endpoint_secret",
            summary="Replace that secret.",
            description="The previous secret stays valid for 24 hours: every message then has two "
            "signatures, and a receiver may know either secret. A rotation that names the "
            "`generation` it replaces can be sent again: it is made once.",
            handler=handlers.rotate,
            body=RequestBody("Which secret is replaced.", Rotation, required=False),
            responses=[
                ResponseSpec(
                    HTTPStatus.OK, "The new secret, and the one before.", EndpointSecretView
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
