"""Estimates a rate and the time left from samples. The caller supplies the time."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_SECONDS: Final = 30.0
"""The rate is measured over this window: older samples say little about what comes next."""


class Pace:
    """The growth rate of a number, from samples."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def look(self, at: float, number: int) -> None:
        """Add a sample at a time in seconds. A smaller number than before starts over."""
        if self._samples and number < self._samples[-1][1]:
            self._samples.clear()
        self._samples.append((at, number))
        while len(self._samples) > 2 and self._samples[1][0] <= at - WINDOW_SECONDS:
            self._samples.popleft()

    @property
    def per_second(self) -> float | None:
        """The rate; None before there are two samples."""
        if len(self._samples) < 2:
            return None
        (first_at, first), (last_at, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else None

    def seconds_for(self, more: int) -> float | None:
        """The time that ``more`` will take; None if the rate is zero or unknown."""
        rate = self.per_second
        return more / rate if rate else None
