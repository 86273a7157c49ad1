"""The egress guard for webhooks: on a developer's machine they may also go to that machine.

Only webhooks. Other outgoing requests are influenced by more people: an upstream is called with
whatever its callers send, and a fetched page may redirect anywhere. But whoever configures a
webhook names the exact URL that is posted to.
"""

from __future__ import annotations

from typing import Final

from coatcheck.egress.guard import Guard, guard_of
from coatcheck.settings import Settings
from coatcheck.settings.egress_allow import parse_allow

_LOOPBACK: Final = parse_allow("localhost,127.0.0.0/8,::1")


def receiver_guard(settings: Settings) -> Guard:
    """The guard for webhooks, made from the settings."""
    return guard_of(settings, allow=_LOOPBACK if settings.webhook_loopback else ())
