"""Where webhooks may be sent: wherever the guard lets anything, and on a developer's machine to
itself.

Receivers only. What else leaves the deployment is steered by others as well: an upstream is called
with whatever its callers send, and a page that is fetched may redirect to wherever it likes. But
whoever names a receiver names the very URL that is posted to.
"""

from __future__ import annotations

from typing import Final

from coatcheck.egress.guard import Guard, guard_of
from coatcheck.settings import Settings
from coatcheck.settings.egress_allow import parse_allow

_LOOPBACK: Final = parse_allow("localhost,127.0.0.0/8,::1")


def receiver_guard(settings: Settings) -> Guard:
    """The guard of webhooks, as the settings have it."""
    return guard_of(settings, allow=_LOOPBACK if settings.webhook_loopback else ())
