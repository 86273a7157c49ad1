"""The interval at which a worker polls for jobs, because notifications can get lost."""

from __future__ import annotations

_SUCCESSES_BEFORE_FASTER = 3


class PollInterval:
    """Doubles on each failure, up to a maximum; halves after three successes in a row."""

    def __init__(self, seconds_min: float, seconds_max: float) -> None:
        self._min = seconds_min
        self._max = seconds_max
        self._successes = 0
        self.seconds = seconds_min

    def succeeded(self) -> None:
        self._successes += 1
        if self._successes >= _SUCCESSES_BEFORE_FASTER:
            self._successes = 0
            self.seconds = max(self._min, self.seconds / 2)

    def failed(self) -> None:
        self._successes = 0
        self.seconds = min(self._max, self.seconds * 2)
