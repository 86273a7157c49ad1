"""Stripe's scheme for signing what it sends: ``Stripe-Signature: t=TIME,v1=HEX[,v1=HEX...]``.

``v1`` is the HMAC-SHA256 of ``TIME.BODY`` under the webhook's secret. There are several while the
secret is being rolled. The time is signed along, so that a request cannot be sent again much later.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from coatcheck.domain.errors import InvalidParameter

TOLERANCE_SECONDS: Final = 300
_SIGNATURES_MAX: Final = 16
_HEADER: Final = "Stripe-Signature"


def check_signature(header: str | None, body: bytes, secret: str, *, now: float) -> None:
    """Raise InvalidParameter unless Stripe signed ``body`` under ``secret``, and lately."""
    fields = [field.strip().partition("=") for field in (header or "").split(",")]
    times = [value for name, _, value in fields if name == "t"]
    given = [value for name, _, value in fields if name == "v1"][:_SIGNATURES_MAX]
    if len(times) != 1 or not given:
        raise _refusal("is missing, or not of the form t=TIME,v1=SIGNATURE")
    signed = times[0].encode("utf-8", "replace") + b"." + body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest().encode()
    # Every one is compared, whichever is right.
    matches = [hmac.compare_digest(expected, each.encode("utf-8", "replace")) for each in given]
    if not any(matches):
        raise _refusal("does not match the body")
    if not _is_recent(times[0], now):
        raise _refusal(f"is more than {TOLERANCE_SECONDS} seconds off")


def _is_recent(time: str, now: float) -> bool:
    return time.isascii() and time.isdigit() and abs(now - int(time[:20])) <= TOLERANCE_SECONDS


def _refusal(issue: str) -> InvalidParameter:
    return InvalidParameter(_HEADER, issue, "header")
