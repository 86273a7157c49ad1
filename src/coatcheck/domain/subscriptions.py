"""The plan of an organisation, as events tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

ACTIVE: Final = frozenset({"active", "trialing", "past_due"})
"""Stripe's words for a plan that works. While a payment is ``past_due`` Stripe still tries to
collect it; it says ``unpaid`` or ``canceled`` when it has given up."""


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """One thing that happened to an organisation's plan."""

    event_id: str
    at: datetime
    rank: int
    """Puts events of one second in order. 0: a beginning, which any other event knows better."""
    customer: str | None
    subscription: str | None
    status: str | None
    """None: the event only links a customer with an organisation."""
    org: str | None
    """The organisation that the event names, if it does."""
    relinks: bool
    """Whether it may give an organisation another customer: only what a server of ours has set
    may, not what a buyer could have put into a link."""


class TakenIn(Enum):
    """What became of an event."""

    APPLIED = "applied"
    REPEATED = "repeated"
    UNKNOWN = "unknown"
    """No organisation has that customer."""
