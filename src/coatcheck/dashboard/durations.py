"""Durations between two timestamps of the API."""

from __future__ import annotations

from coatcheck.dashboard.shown import read_time


def between(start: str | None, end: str | None) -> float | None:
    """The seconds from ``start`` to ``end``; None if either is missing."""
    if start is None or end is None:
        return None
    return max((read_time(end) - read_time(start)).total_seconds(), 0.0)
