"""Reads the events that Stripe sends, as far as they tell of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from coatcheck.domain.errors import InvalidBody
from coatcheck.domain.subscriptions import PlanEvent
from coatcheck.domain.tenants import is_org_id

CHECKOUT_COMPLETED: Final = "checkout.session.completed"
SUBSCRIPTION_DELETED: Final = "customer.subscription.deleted"

_RANKS: Final[Mapping[str, int]] = {
    CHECKOUT_COMPLETED: 0,
    "customer.subscription.created": 1,
    "customer.subscription.updated": 2,
    "customer.subscription.paused": 2,
    "customer.subscription.resumed": 2,
    SUBSCRIPTION_DELETED: 3,
}
"""The events that are looked at, in the order they happen in if they share a second."""

_PAID: Final = frozenset({"paid", "no_payment_required"})
_TEXT_CHARACTERS_MAX: Final = 255


class _Data(msgspec.Struct):
    object: msgspec.Raw


class _Event(msgspec.Struct):
    id: str
    type: str
    created: int
    data: _Data


class _Expanded(msgspec.Struct):
    id: str


class _Subscription(msgspec.Struct):
    id: str
    customer: str | _Expanded
    status: str
    metadata: dict[str, Any] | None = None


class _Checkout(msgspec.Struct):
    customer: str | _Expanded | None = None
    subscription: str | _Expanded | None = None
    client_reference_id: str | None = None
    metadata: dict[str, Any] | None = None
    payment_status: str | None = None


def read_event(body: bytes) -> PlanEvent | None:
    """What the event tells of a plan; None if it is about something else. Raises InvalidBody."""
    try:
        event = msgspec.json.decode(body, type=_Event)
        at = datetime.fromtimestamp(event.created, UTC)
        if event.type == CHECKOUT_COMPLETED:
            return _of_checkout(event, at, msgspec.json.decode(event.data.object, type=_Checkout))
        if event.type in _RANKS:
            told = msgspec.json.decode(event.data.object, type=_Subscription)
            return _of_subscription(event, at, told)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError, OSError) as error:
        raise InvalidBody("The body is not an event of Stripe.") from error
    return None


def _of_subscription(event: _Event, at: datetime, told: _Subscription) -> PlanEvent:
    return PlanEvent(
        event_id=_text(event.id),
        at=at,
        rank=_RANKS[event.type],
        customer=_id(told.customer),
        subscription=_text(told.id),
        status="canceled" if event.type == SUBSCRIPTION_DELETED else _text(told.status),
        org=_named_org(told.metadata),
        relinks=True,
    )


def _of_checkout(event: _Event, at: datetime, told: _Checkout) -> PlanEvent:
    named = _named_org(told.metadata)
    reference = told.client_reference_id
    return PlanEvent(
        event_id=_text(event.id),
        at=at,
        rank=_RANKS[event.type],
        customer=_id(told.customer),
        subscription=_id(told.subscription),
        status="active" if told.payment_status in _PAID else None,
        org=named or (reference if is_org_id(reference) else None),
        relinks=named is not None,
    )


def _named_org(metadata: Mapping[str, Any] | None) -> str | None:
    org = (metadata or {}).get("org_id")
    return org if is_org_id(org) else None


def _id(given: str | _Expanded | None) -> str | None:
    """Stripe shows an object by its id, or whole where that was asked for."""
    if given is None:
        return None
    return _text(given if isinstance(given, str) else given.id)


def _text(given: str) -> str:
    if not 1 <= len(given) <= _TEXT_CHARACTERS_MAX or "\0" in given:
        raise ValueError("out of bounds")
    return given
