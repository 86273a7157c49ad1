"""``/api/v1/me``: the caller's organisation, user and scopes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

import msgspec

from coatcheck.domain.errors import Unauthenticated
from coatcheck.domain.tenants import Scope
from coatcheck.http.gate import Gate
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import Access, ResponseSpec, Route


class Me(msgspec.Struct, frozen=True):
    """A caller. ``operator``: may read every organisation of the deployment."""

    org_id: str
    kind: Literal["key", "user", "service"]
    user: str | None
    key_id: str | None
    scopes: list[Scope]
    operator: bool


def routes(gate: Gate) -> list[Route]:
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
