"""Routes for the deployment's operators only: list organisations, remove unused endpoints."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.core.queries import services, tenants
from coatcheck.db.connection import Connection
from coatcheck.domain.catalogue import parse_name
from coatcheck.domain.errors import NotFound
from coatcheck.domain.tenants import Scope
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import ResponseSpec, Route
from coatcheck.products.console import schemas
from coatcheck.products.console.jobs import TAG

OPERATOR: Final = "/api/v1/operator"
OPERATORS_ONLY: Final = ResponseSpec.problem(
    HTTPStatus.FORBIDDEN, "The caller is not an operator: `missing_scope`."
)


def routes(db: Connection) -> list[Route]:
    """``/api/v1/operator/orgs`` and ``/api/v1/operator/services/{name}``."""

    async def orgs(_: Request) -> Response:
        found = await tenants.list_orgs(db)
        return json_response(
            schemas.OperatedOrgs(
                [
                    schemas.OperatedOrg(org.org_id, org.name, org.subscription, org.created_at)
                    for org in found
                ]
            )
        )

    async def forget_services(request: Request) -> Response:
        named = parse_name(request.params["name"])
        if named is None:
            raise NotFound
        result = await services.forget(db, *named)
        if not result.forgotten and not result.served:
            raise NotFound
        return json_response(schemas.ForgottenServices(list(result.forgotten), list(result.served)))

    return [
        Route(
            methods=("DELETE",),
            path=f"{OPERATOR}/services/{{name}}",
            name="operator_forget_services",
            summary="Remove Python endpoints without a live worker from the catalogue.",
            description="`name` is a service, a version of it or an endpoint: `docs`, `docs.v2`, "
            "`docs.post__count`, `docs.v2.post__count`. Accepted jobs stay; a worker that "
            "publishes an endpoint adds it again.",
            handler=forget_services,
            access=Scope.ADMIN,
            operators_only=True,
            tag=TAG,
            responses=(
                ResponseSpec(HTTPStatus.OK, "The removed endpoints.", schemas.ForgottenServices),
                OPERATORS_ONLY,
            ),
        ),
        Route(
            methods=("GET",),
            path=f"{OPERATOR}/orgs",
            name="operator_orgs",
            summary="List the organisations of the deployment, for its operators.",
            description="Operators are the admins of the organisation that COATCHECK_OPERATOR_ORG "
            "names. An organisation that appears only in tokens has no row, and is not listed.",
            handler=orgs,
            access=Scope.ADMIN,
            operators_only=True,
            tag=TAG,
            responses=(
                ResponseSpec(HTTPStatus.OK, "The organisations.", schemas.OperatedOrgs),
                OPERATORS_ONLY,
            ),
        ),
    ]
