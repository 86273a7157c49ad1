"""How fast a batch goes, and how long it will still take. No clock is read here."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_SECONDS: Final = 30.0
"""A rate is that of the last half a minute: what was before says little about what comes."""


class Pace:
    """How a number grows, by looks at it."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def look(self, at: float, number: int) -> None:
        """Take note of the ``number`` at a moment, in seconds. A smaller one begins anew."""
        if self._looks and number < self._looks[-1][1]:
            self._looks.clear()
        self._looks.append((at, number))
        while len(self._looks) > 2 and self._looks[1][0] <= at - WINDOW_SECONDS:
            self._looks.popleft()

    @property
    def per_second(self) -> float | None:
        """The rate; None before there were two looks."""
        if len(self._looks) < 2:
            return None
        (first_at, first), (last_at, last) = self._looks[0], self._looks[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else None

    def seconds_for(self, more: int) -> float | None:
        """How long so many more will take; None if nothing moves."""
        rate = self.per_second
        return more / rate if rate else None
