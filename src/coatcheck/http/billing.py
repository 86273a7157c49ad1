"""Stripe subscriptions: parses events, checks signatures, and refuses inactive organisations."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from coatcheck.db.connection import Connection
from coatcheck.domain.errors import InvalidBody, InvalidParameter, SubscriptionInactive
from coatcheck.domain.tenants import ACTIVE, PlanEvent, is_org_id
from coatcheck.http.auth.authenticator import OrgLookUp, RecentCache
from coatcheck.settings import Settings

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
"""The events that are processed, and their order if they have the same second."""

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
    """The change of a plan that an event reports; None for other events. Raises InvalidBody."""
    try:
        event = msgspec.json.decode(body, type=_Event)
        at = datetime.fromtimestamp(event.created, UTC)
        if event.type == CHECKOUT_COMPLETED:
            return _of_checkout(event, at, msgspec.json.decode(event.data.object, type=_Checkout))
        if event.type in _RANKS:
            subscription = msgspec.json.decode(event.data.object, type=_Subscription)
            return _of_subscription(event, at, subscription)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError, OSError) as error:
        raise InvalidBody("The body is not a Stripe event.") from error
    return None


def _of_subscription(event: _Event, at: datetime, subscription: _Subscription) -> PlanEvent:
    is_deleted = event.type == SUBSCRIPTION_DELETED
    return PlanEvent(
        event_id=_text(event.id),
        at=at,
        rank=_RANKS[event.type],
        customer=_id(subscription.customer),
        subscription=_text(subscription.id),
        status="canceled" if is_deleted else _text(subscription.status),
        org=_named_org(subscription.metadata),
        relinks=True,
    )


def _of_checkout(event: _Event, at: datetime, checkout: _Checkout) -> PlanEvent:
    named = _named_org(checkout.metadata)
    reference = checkout.client_reference_id
    return PlanEvent(
        event_id=_text(event.id),
        at=at,
        rank=_RANKS[event.type],
        customer=_id(checkout.customer),
        subscription=_id(checkout.subscription),
        status="active" if checkout.payment_status in _PAID else None,
        org=named or (reference if is_org_id(reference) else None),
        relinks=named is not None,
    )


def _named_org(metadata: Mapping[str, Any] | None) -> str | None:
    org = (metadata or {}).get("org_id")
    return org if is_org_id(org) else None


def _id(given: str | _Expanded | None) -> str | None:
    """Stripe sends the id of an object, or the whole object where expansion was requested."""
    if given is None:
        return None
    return _text(given if isinstance(given, str) else given.id)


def _text(given: str) -> str:
    if not 1 <= len(given) <= _TEXT_CHARACTERS_MAX or "\0" in given:
        raise ValueError("out of bounds")
    return given


TOLERANCE_SECONDS: Final = 300
_SIGNATURES_MAX: Final = 16
_HEADER: Final = "Stripe-Signature"


def check_signature(header: str | None, body: bytes, secret: str, *, now: float) -> None:
    """Raise InvalidParameter unless ``header`` is a recent signature of ``body``."""
    fields = [field.strip().partition("=") for field in (header or "").split(",")]
    times = [value for name, _, value in fields if name == "t"]
    given = [value for name, _, value in fields if name == "v1"][:_SIGNATURES_MAX]
    if len(times) != 1 or not given:
        raise _refusal("is missing, or does not have the form t=TIME,v1=SIGNATURE")
    signed = times[0].encode("utf-8", "replace") + b"." + body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest().encode()
    # All are compared, also after a match: the time taken must not depend on which one matches.
    matches = [hmac.compare_digest(expected, each.encode("utf-8", "replace")) for each in given]
    if not any(matches):
        raise _refusal("does not match the body")
    if not _is_recent(times[0], now):
        raise _refusal(f"has a time that is more than {TOLERANCE_SECONDS} seconds off")


def _is_recent(time: str, now: float) -> bool:
    return time.isascii() and time.isdigit() and abs(now - int(time[:20])) <= TOLERANCE_SECONDS


def _refusal(issue: str) -> InvalidParameter:
    return InvalidParameter(_HEADER, issue, "header")


REMEMBERED_SECONDS: Final = 30.0
_ORG_WORD: Final = "org:"


class Subscriptions:
    """The plans of all organisations. With billing off, every plan is active.

    ``clock`` measures how long a plan is cached.
    """

    def __init__(
        self, settings: Settings, db: Connection, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._billing = bool(settings.stripe_webhook_secret)
        self._orgs = OrgLookUp(db)
        self._active: RecentCache[str, bool] = RecentCache(REMEMBERED_SECONDS, clock=clock)

    def check_now(self, org: str) -> bool | None:
        """Whether the plan is active, if that is cached; None if the database must be asked."""
        return self._active.get(org) if self._billing else True

    async def check(self, org: str) -> None:
        """Raises SubscriptionInactive, or DatabaseUnavailable."""
        active = self.check_now(org)
        if active is None:
            epoch = self._active.epoch
            active = await self._ask(org)
            self._active.put(org, active, epoch=epoch)
        if not active:
            raise SubscriptionInactive(
                "The organisation's subscription is not active; results can still be read."
            )

    def on_keys_changed(self, payload: str) -> None:
        """Drop the cache entries that a notification on the channel KEYS names."""
        if not payload:
            self.forget_all()
            return
        changed = {word.removeprefix(_ORG_WORD) for word in payload.split(",")}
        self._active.drop(lambda org, _: org in changed)

    def forget_all(self) -> None:
        self._active.clear()

    async def _ask(self, org: str) -> bool:
        found = await self._orgs.find(org)
        # An organisation without a row has never had a plan.
        return found is not None and found.subscription in ACTIVE
