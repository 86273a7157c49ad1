"""What the deployment's operators may ask besides: which organisations there are."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from coatcheck.control.call import Call
from coatcheck.control.operations import Answer, Operation
from coatcheck.control.problems import MEDIA_TYPE, Problem
from coatcheck.control.reply import Reply, json_reply
from coatcheck.domain.identity import Scope
from coatcheck.store import tenants
from coatcheck.store.faults import retried
from coatcheck.store.line import Line
from coatcheck.surfaces.console import words
from coatcheck.surfaces.console.scene import TAG

OPERATOR: Final = "/api/v1/operator"
OPERATORS_ONLY: Final = Answer(
    HTTPStatus.FORBIDDEN, "The caller is no operator: `missing_scope`.", Problem, MEDIA_TYPE
)


def operations(line: Line) -> list[Operation]:
    """``/api/v1/operator/orgs``."""

    async def orgs(_: Call) -> Reply:
        found = await retried(lambda: tenants.list_orgs(line))
        return json_reply(
            words.OperatedOrgs(
                [
                    words.OperatedOrg(org.org_id, org.name, org.subscription, org.created_at)
                    for org in found
                ]
            )
        )

    return [
        Operation(
            methods=("GET",),
            path=f"{OPERATOR}/orgs",
            name="operator_orgs",
            summary="Every organisation of the deployment, for its operators.",
            description="Operators are the admins of the organisation that COATCHECK_OPERATOR_ORG "
            "names. Organisations that only tokens know have no row, and are not listed.",
            handler=orgs,
            access=Scope.ADMIN,
            operators_only=True,
            tag=TAG,
            answers=(
                Answer(HTTPStatus.OK, "The organisations.", words.OperatedOrgs),
                OPERATORS_ONLY,
            ),
        )
    ]
