"""A time by which something is to be done, by this machine's monotonic clock."""

from __future__ import annotations

import math
import time


class Deadline:
    """So many seconds from now; None is never."""

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and not seconds >= 0:
            raise ValueError("a timeout must not be negative")
        self.seconds = math.inf if seconds is None else seconds
        self._at = time.monotonic() + self.seconds

    def remaining(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self._at - time.monotonic())

    @property
    def passed(self) -> bool:
        return self.remaining() == 0.0


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began
