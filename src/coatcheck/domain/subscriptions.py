"""An organisation's subscription, updated by Stripe's events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

ACTIVE: Final = frozenset({"active", "trialing", "past_due"})
"""Stripe's statuses of a working subscription. While a payment is ``past_due`` Stripe still tries
to collect it; the status becomes ``unpaid`` or ``canceled`` when it has given up."""


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """One event of an organisation's subscription."""

    event_id: str
    at: datetime
    rank: int
    """Orders events of the same second. 0: a beginning, which any other event overrides."""
    customer: str | None
    subscription: str | None
    status: str | None
    """None: the event only links a customer to an organisation."""
    org: str | None
    """The organisation that the event names, if any."""
    relinks: bool
    """Whether it may link an organisation to another customer: only data set by our servers may,
    not what a buyer could put into a link."""


class TakenIn(Enum):
    """What became of an event."""

    APPLIED = "applied"
    REPEATED = "repeated"
    UNKNOWN = "unknown"
    """No organisation has that customer."""
