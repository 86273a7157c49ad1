"""Parses the ``Retry-After`` header of responses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def asked_seconds(headers: Mapping[str, str], now: datetime, most: float) -> float | None:
    """The delay that ``Retry-After`` asks for in seconds, between 0 and ``most``, or None.

    ``headers`` has lower-case names. A date is compared with the server's own ``Date`` if it sent
    one.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value), most)
    due = _date(value)
    if due is None:
        return None
    seconds = (due - (_date(headers.get("date", "")) or now)).total_seconds()
    return min(max(seconds, 0.0), most)


def _date(value: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
