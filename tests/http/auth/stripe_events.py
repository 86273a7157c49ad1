"""What Stripe sends: events, signed by its scheme."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import time
from typing import Any

import httpx2

SECRET = "whsec_a_secret_of_tests"
PATH = "/webhooks/stripe"
BEGAN = 1_700_000_000
_numbers = itertools.count(1)


def signature(body: bytes, secret: str = SECRET, at: float | None = None) -> str:
    when = int(time.time() if at is None else at)
    signed = hmac.new(secret.encode(), b"%d." % when + body, hashlib.sha256).hexdigest()
    return f"t={when},v1={signed}"


def event(kind: str, told: dict[str, Any], *, at: int = BEGAN, event_id: str = "") -> bytes:
    return json.dumps(
        {
            "id": event_id or f"evt_{next(_numbers)}",
            "object": "event",
            "api_version": "2025-01-27.acacia",
            "type": kind,
            "created": at,
            "livemode": False,
            "data": {"object": told},
        }
    ).encode()


def subscription(status: str, *, kind: str = "updated", **options: Any) -> bytes:
    told = {
        "id": options.get("id", "sub_1"),
        "object": "subscription",
        "customer": options.get("customer", "cus_1"),
        "status": status,
        "metadata": options.get("metadata", {}),
    }
    at, event_id = options.get("at", BEGAN), options.get("event_id", "")
    return event(f"customer.subscription.{kind}", told, at=at, event_id=event_id)


def checkout(**options: Any) -> bytes:
    told = {
        "id": "cs_1",
        "object": "checkout.session",
        "mode": "subscription",
        "customer": "cus_1",
        "subscription": "sub_1",
        "client_reference_id": "acme",
        "metadata": {},
        "payment_status": "paid",
    } | options
    return event("checkout.session.completed", told)


async def send(client: httpx2.AsyncClient, body: bytes, **headers: str) -> httpx2.Response:
    return await client.post(
        PATH, content=body, headers={"Stripe-Signature": signature(body)} | headers
    )


async def told(client: httpx2.AsyncClient, body: bytes) -> str:
    answer = await send(client, body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["received"] is True
    outcome: str = answer.json()["outcome"]
    return outcome
