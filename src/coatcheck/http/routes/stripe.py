"""The webhook receiver for Stripe's events about subscriptions. Absent while billing is off."""

from __future__ import annotations

import logging
import time
from http import HTTPStatus
from typing import Literal

import msgspec

from coatcheck.core.queries import billing
from coatcheck.db.connection import Connection
from coatcheck.domain.limits import STRIPE_EVENT_BYTES_MAX
from coatcheck.domain.tenants import PlanChange
from coatcheck.http.billing import check_signature, read_event
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import Parameter, RequestBody, ResponseSpec, Route
from coatcheck.settings import Settings

_log = logging.getLogger(__name__)


class Received(msgspec.Struct, frozen=True):
    """The event was received; it need not be sent again."""

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
        outcome = await billing.apply_event(db, event)
        _log.info(
            "received a Stripe event",
            extra={"event": event.event_id, "outcome": outcome.value, "customer": event.customer},
        )
        if outcome is PlanChange.UNKNOWN:
            _log.warning(
                "no organisation has this Stripe customer", extra={"customer": event.customer}
            )
        return json_response(Received(outcome.value))

    return [
        Route(
            methods=["POST"],
            path="/webhooks/stripe",
            name="stripe_webhook",
            summary="Receive an event of Stripe.",
            description="The signature is verified. Events that are not about a subscription are "
            "ignored, with 200. A repeated event has no effect.",
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
                ResponseSpec(HTTPStatus.OK, "The event was received.", Received),
                ResponseSpec.problem(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "The database is unavailable; Stripe sends the event again.",
                ),
            ],
            tag="billing",
        )
    ]
