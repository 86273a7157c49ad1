"""The routes of credentials: create, list, show and revoke an organisation's API keys, and say whom
the credential of a request stands for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.domain import ids
from coatcheck.domain import tenants as api_keys
from coatcheck.domain.errors import (
    FieldIssue,
    InvalidInput,
    MissingScope,
    NotFound,
    Unauthenticated,
)
from coatcheck.domain.limits import (
    API_KEY_NAME_CHARACTERS_MAX,
    KEY_LIFE_SECONDS_MAX,
    RATE_REQUESTS_MAX,
    RATE_SECONDS_MAX,
)
from coatcheck.domain.patterns import whole
from coatcheck.domain.tenants import (
    USER_ID_ALLOWED,
    USER_SCOPES,
    Principal,
    RateLimit,
    Scope,
    StoredApiKey,
    is_user_id,
)
from coatcheck.http.bodies import read_body
from coatcheck.http.gate import Gate
from coatcheck.http.pages import PAGE_PARAMETERS, read_cursor, read_limit
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response, raw_header
from coatcheck.http.routing import Access, RequestBody, ResponseSpec, Route
from coatcheck.settings import Settings

PATH: Final = "/api/v1/orgs/{org}/api-keys"

_BODY_BYTES_MAX: Final = 16 * 1024

_TAG: Final = "organisations"


class RateLimitView(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rate limit: ``requests`` in each window of ``seconds``."""

    requests: Annotated[int, Meta(ge=1, le=RATE_REQUESTS_MAX)]
    seconds: Annotated[int, Meta(ge=1, le=RATE_SECONDS_MAX)]


class NewApiKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of a new key. Without ``scopes``: submit and read."""

    name: Annotated[str, Meta(max_length=API_KEY_NAME_CHARACTERS_MAX)]
    user: Annotated[str, Meta(pattern=whole("[!-~]{1,255}"))] | None = None
    scopes: Annotated[list[Scope], Meta(min_length=1)] | None = None
    expires_in_seconds: Annotated[int, Meta(ge=1, le=KEY_LIFE_SECONDS_MAX)] | None = None
    rate_limit: RateLimitView | None = None


class ApiKeyView(msgspec.Struct, frozen=True):
    """A key, without its secret."""

    id: str
    org_id: str
    user: str
    name: str
    scopes: list[Scope]
    rate_limit: RateLimitView | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class CreatedApiKey(ApiKeyView, frozen=True):
    """A new key. ``key`` is shown in this response and never again."""

    key: str


class ApiKeyPage(msgspec.Struct, frozen=True):
    """Keys, newest first. ``next`` is the cursor of the page after this one, if there is one."""

    items: list[ApiKeyView]
    next: str | None


class _ApiKeys:
    """The handlers."""

    def __init__(self, settings: Settings, db: Connection) -> None:
        self._pepper = settings.require("key_pepper").encode()
        self._db = db

    async def create(self, request: Request) -> Response:
        new = await read_body(request, NewApiKey, _BODY_BYTES_MAX)
        scopes = _granted(request.principal, new.scopes)
        user = _user(request.principal, new.user)
        limit = new.rate_limit
        key = api_keys.mint()
        created = await tenants.create_key(
            self._db,
            request.principal.org,
            key.key_id,
            user=user,
            name=new.name,
            digest=key.digest(self._pepper),
            scopes=scopes,
            rate=None if limit is None else RateLimit(limit.requests, limit.seconds),
            seconds_to_live=new.expires_in_seconds,
        )
        if created is None:
            raise NotFound("the organisation has no row: only tokens name it")
        shown = CreatedApiKey(**msgspec.structs.asdict(_shown(created)), key=key.text)
        location = f"{PATH.format(org=created.org)}/{created.key_id}"
        headers = [raw_header("Location", location), raw_header("Cache-Control", "no-store")]
        return json_response(shown, HTTPStatus.CREATED, headers)

    async def list_page(self, request: Request) -> Response:
        query = request.query
        limit, after = read_limit(query), read_cursor(query, _stored_form)
        keys = await tenants.list_keys(
            self._db, request.principal.org, after=after, limit=limit + 1
        )
        page = keys[:limit]
        following = page[-1].key_id if len(keys) > limit else None
        return json_response(ApiKeyPage([_shown(key) for key in page], following))

    async def show(self, request: Request) -> Response:
        org, key_id = request.principal.org, request.params["id"]
        found = await tenants.get_key(self._db, org, _known_form(key_id))
        if found is None:
            raise NotFound
        return json_response(_shown(found))

    async def revoke(self, request: Request) -> Response:
        org, key_id = request.principal.org, request.params["id"]
        if not await tenants.revoke(self._db, org, _known_form(key_id)):
            raise NotFound
        return Response(HTTPStatus.NO_CONTENT)


def routes(settings: Settings, db: Connection) -> list[Route]:
    """``/api/v1/orgs/{org}/api-keys``, for callers with the scope ``admin``."""
    keys = _ApiKeys(settings, db)
    route = partial(Route, access=Scope.ADMIN, operable=True, tag=_TAG)
    return [
        route(
            methods=["POST"],
            path=PATH,
            name="create_api_key",
            summary="Create an API key.",
            description="The response shows the key once; the server does not store it. A key "
            "cannot have a scope that its creator does not have. It submits jobs on behalf of "
            "`user`, by default the caller.",
            handler=keys.create,
            body=RequestBody("The properties of the key.", NewApiKey),
            responses=[
                ResponseSpec(
                    HTTPStatus.CREATED,
                    "The key.",
                    CreatedApiKey,
                    headers={"Location": "The key's URL."},
                ),
                ResponseSpec.problem(
                    HTTPStatus.UNPROCESSABLE_ENTITY, "The body is invalid; `details` says why."
                ),
            ],
        ),
        route(
            methods=["GET"],
            path=PATH,
            name="list_api_keys",
            summary="List the organisation's API keys.",
            description="Newest first, revoked keys included. No secret is shown.",
            handler=keys.list_page,
            parameters=PAGE_PARAMETERS,
            responses=[ResponseSpec(HTTPStatus.OK, "A page of keys.", ApiKeyPage)],
        ),
        route(
            methods=["GET"],
            path=f"{PATH}/{{id}}",
            name="get_api_key",
            summary="Show an API key.",
            handler=keys.show,
            responses=[ResponseSpec(HTTPStatus.OK, "The key, without its secret.", ApiKeyView)],
        ),
        route(
            methods=["DELETE"],
            path=f"{PATH}/{{id}}",
            name="revoke_api_key",
            summary="Revoke an API key for ever.",
            description="Every server refuses it within a second. Revoking it again has no effect.",
            handler=keys.revoke,
            responses=[ResponseSpec(HTTPStatus.NO_CONTENT, "The key is revoked.", empty=True)],
        ),
    ]


def _granted(creator: Principal, requested: Sequence[Scope] | None) -> frozenset[Scope]:
    scopes = USER_SCOPES if requested is None else frozenset(requested)
    missing = sorted(scopes - creator.scopes)
    if missing:
        raise MissingScope(
            f"A key cannot have scopes that its creator does not have: {', '.join(missing)}."
        )
    return scopes


def _user(creator: Principal, requested: str | None) -> str:
    user = creator.user if requested is None else requested
    if user is None:
        raise InvalidInput([FieldIssue("user", "is required: the caller is not a user")])
    if not is_user_id(user):
        raise InvalidInput([FieldIssue("user", f"must be {USER_ID_ALLOWED}")])
    return user


def _known_form(key_id: str) -> str:
    """A key's id in its stored form. Raises NotFound for any other text."""
    try:
        return _stored_form(key_id)
    except ids.InvalidId:
        raise NotFound from None


def _stored_form(key_id: str) -> str:
    return ids.to_text(ids.from_text(key_id))


def _shown(key: StoredApiKey) -> ApiKeyView:
    rate = key.rate
    return ApiKeyView(
        id=key.key_id,
        org_id=key.org,
        user=key.user,
        name=key.name,
        scopes=sorted(key.scopes),
        rate_limit=None if rate is None else RateLimitView(rate.requests, rate.seconds),
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
    )


class Me(msgspec.Struct, frozen=True):
    """A caller. ``operator``: may read every organisation of the deployment."""

    org_id: str
    kind: Literal["key", "user", "service"]
    user: str | None
    key_id: str | None
    scopes: list[Scope]
    operator: bool


def me_routes(gate: Gate) -> list[Route]:
    async def me(request: Request) -> Response:
        principal = await gate.caller(request)
        if principal is None:
            raise Unauthenticated
        request.response_headers = await gate.count(principal)
        assert principal.kind != "anonymous", "it has presented a credential"
        return json_response(
            Me(
                org_id=principal.org,
                kind=principal.kind,
                user=principal.user,
                key_id=principal.key_id,
                scopes=sorted(principal.scopes),
                operator=gate.operates(principal),
            )
        )

    return [
        Route(
            methods=["GET"],
            path="/api/v1/me",
            name="me",
            summary="Show the caller: organisation, user and scopes.",
            description="Any valid credential may call this; no scope is required.",
            handler=me,
            access=Access.HANDLER,
            responses=[ResponseSpec(HTTPStatus.OK, "The caller.", Me)],
            tag="organisations",
        )
    ]
