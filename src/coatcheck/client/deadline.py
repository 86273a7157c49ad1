"""Deadlines and elapsed time, by the monotonic clock."""

from __future__ import annotations

import math
import time


class Deadline:
    """A number of seconds from now; None means never."""

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and not seconds >= 0:
            raise ValueError("a timeout must not be negative")
        self.seconds = math.inf if seconds is None else seconds
        self._at = time.monotonic() + self.seconds

    def remaining(self) -> float:
        """Remaining seconds, at least 0."""
        return max(0.0, self._at - time.monotonic())

    @property
    def passed(self) -> bool:
        return self.remaining() == 0.0


class Stopwatch:
    """Measures the seconds since its creation."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began
