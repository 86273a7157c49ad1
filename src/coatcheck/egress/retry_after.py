"""Reads what those whom we call ask for by ``Retry-After``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def asked_seconds(headers: Mapping[str, str], now: datetime, most: float) -> float | None:
    """The delay that ``Retry-After`` asks for, as seconds or as a date, 0 to ``most``; None if it
    asks for none. ``headers`` are looked up by lower-case names.

    A date is held against the other's own clock where it says what that shows.
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
