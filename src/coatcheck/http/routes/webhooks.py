"""The routes of webhooks: the signing secret of webhook URLs that submissions name, and all routes
of endpoints and deliveries."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus

import msgspec

from coatcheck.core.queries import webhooks as webhook_store
from coatcheck.core.queries.webhooks import Secret
from coatcheck.core.webhooks import Webhooks
from coatcheck.db.connection import Connection
from coatcheck.domain.tenants import Scope
from coatcheck.egress import Guard
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response, raw_header
from coatcheck.http.routes import webhook_deliveries, webhook_endpoints
from coatcheck.http.routes.webhook_parameters import PATH, TAG
from coatcheck.http.routing import ResponseSpec, Route


class SecretView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The signing secret. After a rotation ``previous`` stays valid until it expires."""

    secret: str
    previous: str | None = None
    previous_expires_at: datetime | None = None


class _Secrets:
    """The handlers."""

    def __init__(self, webhooks: Webhooks, db: Connection) -> None:
        self._webhooks = webhooks
        self._db = db

    async def show(self, request: Request) -> Response:
        org = request.principal.org
        return self._shown(org, await webhook_store.secret(self._db, org))

    async def rotate(self, request: Request) -> Response:
        org = request.principal.org
        before = await webhook_store.secret(self._db, org)
        return self._shown(org, await webhook_store.rotate(self._db, org, before.generation))

    def _shown(self, org: str, secret: Secret) -> Response:
        previous = None
        if secret.previous_until is not None:
            previous = self._webhooks.secrets.text(org, secret.generation - 1)
        view = SecretView(
            self._webhooks.secrets.text(org, secret.generation), previous, secret.previous_until
        )
        return json_response(view, headers=[raw_header("Cache-Control", "no-store")])


def routes(webhooks: Webhooks, receivers: Guard, db: Connection) -> list[Route]:
    """``/api/v1/orgs/{org}/webhooks``, for callers with the scope ``admin``.

    Without the routes of fetched messages, which need the payloads of all products
    (``routes/webhook_messages.py``).
    """
    secrets = _Secrets(webhooks, db)
    return [
        Route(
            methods=["GET"],
            path=f"{PATH}/secret",
            name="webhook_secret",
            summary="Show the secret that signs webhooks to URLs which submissions name.",
            description="Registered endpoints have separate secrets.",
            handler=secrets.show,
            access=Scope.ADMIN,
            operable=True,
            responses=[ResponseSpec(HTTPStatus.OK, "The secret.", SecretView)],
            tag=TAG,
        ),
        Route(
            methods=["POST"],
            path=f"{PATH}/secret/rotate",
            name="rotate_webhook_secret",
            summary="Rotate that secret.",
            description="The previous secret stays valid for 24 hours: every message then has two "
            "signatures, and a receiver may know either secret. After a second rotation within "
            "that time, the oldest secret no longer signs.",
            handler=secrets.rotate,
            access=Scope.ADMIN,
            operable=True,
            responses=[
                ResponseSpec(HTTPStatus.OK, "The new secret and the previous one.", SecretView)
            ],
            tag=TAG,
        ),
        *webhook_endpoints.routes(webhooks, receivers),
        *webhook_deliveries.routes(webhooks),
    ]
