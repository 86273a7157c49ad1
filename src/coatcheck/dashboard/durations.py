"""How long it was between two moments that the API has told."""

from __future__ import annotations

from coatcheck.dashboard.shown import read_time


def between(start: str | None, end: str | None) -> float | None:
    """Seconds; None if one of them has not come."""
    if start is None or end is None:
        return None
    return max((read_time(end) - read_time(start)).total_seconds(), 0.0)
