"""The Retry-After header: a number of seconds, or a date."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_DIGITS_MAX = 9


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """How many seconds the server asks to wait; None if it does not say.

    A date is compared with the answer's own Date: this machine's clock may be wrong.
    """
    given = headers.get("retry-after", "").strip()
    if given.isascii() and given.isdigit():
        return float(given) if len(given) <= _DIGITS_MAX else None
    until = _date(given)
    if until is None:
        return None
    said_at = _date(headers.get("date", "")) or datetime.now(UTC)
    return max(0.0, (until - said_at).total_seconds())


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
