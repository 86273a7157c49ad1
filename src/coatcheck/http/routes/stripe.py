"""Where Stripe tells of its customers' subscriptions. Not there while billing is off."""

from __future__ import annotations

import logging
import time
from http import HTTPStatus
from typing import Literal

import msgspec

from coatcheck.core.queries import billing
from coatcheck.db.connection import Connection
from coatcheck.db.errors import retried
from coatcheck.domain.limits import STRIPE_EVENT_BYTES_MAX
from coatcheck.domain.tenants import PlanChange
from coatcheck.http.billing import check_signature, read_event
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import Parameter, RequestBody, ResponseSpec, Route
from coatcheck.settings import Settings

_log = logging.getLogger(__name__)


class Received(msgspec.Struct, frozen=True):
    """The event arrived; it need not be sent again."""

    outcome: Literal["applied", "repeated", "unknown", "ignored"]
    received: Literal[True] = True


def routes(settings: Settings, db: Connection) -> list[Route]:
    """``/webhooks/stripe``, if billing is on."""
    secret = settings.stripe_webhook_secret
    if not secret:
        return []

    async def receive(request: Request) -> Response:
        body = await request.body(STRIPE_EVENT_BYTES_MAX)
        check_signature(request.header(b"stripe-signature"), body, secret, now=time.time())
        event = read_event(body)
        if event is None:
            return json_response(Received("ignored"))
        taken = await retried(lambda: billing.take_in(db, event))
        _log.info(
            "an event of Stripe was taken in",
            extra={"event": event.event_id, "outcome": taken.value, "customer": event.customer},
        )
        if taken is PlanChange.UNKNOWN:
            _log.warning(
                "no organisation has this customer of Stripe", extra={"customer": event.customer}
            )
        return json_response(Received(taken.value))

    return [
        Route(
            methods=["POST"],
            path="/webhooks/stripe",
            name="stripe_webhook",
            summary="For Stripe: an event happened.",
            description="Verified by its signature. Events that tell nothing of a subscription are "
            "answered 200 and ignored; one that comes again changes nothing.",
            handler=receive,
            parameters=[
                Parameter(
                    "Stripe-Signature",
                    "header",
                    "Stripe's signature of the body: `t=TIME,v1=HEX`.",
                    required=True,
                )
            ],
            body=RequestBody("The event, as Stripe sends it.", schema={"type": "object"}),
            responses=[
                ResponseSpec(HTTPStatus.OK, "It arrived.", Received),
                ResponseSpec(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "The database is away; Stripe sends it again.",
                    Problem,
                    MEDIA_TYPE,
                ),
            ],
            tag="billing",
        )
    ]
