"""The polling schedule for remote work.

At first polls come quickly: short work is done at once, and so are most mistakes. Then they pause
until such work may be done, according to its usual duration and spread; come close together while
it may be done; and thin out again after that. If the usual duration is unknown, the interval grows
with the age of the work, so that a result waits at most for a fraction of its duration.
"""

from __future__ import annotations

from typing import Final

FIRST_LOOK_SECONDS: Final = 0.2
LOOK_SECONDS_MAX: Final = 30.0
_STEP: Final = 0.25
"""A fraction of its age, or of the time it is late."""
_SPREADS: Final = 2.0
"""How many times its usual spread work may be early or late."""
_CLOSE: Final = 0.05
"""While it may be done, the interval is this part of the usual time, or a part of its spread."""
_QUICK_LOOKS: Final = 2

FAULT_SECONDS_MIN: Final = 1.0
"""The pause after an unusable answer; doubled for each in a row."""


def seconds_to_next_look(
    age: float, looks: int, usual: float | None, spread: float | None
) -> float:
    """The pause after the ``looks``-th poll of work that started ``age`` seconds ago."""
    grown = max(FIRST_LOOK_SECONDS, age * _STEP)
    if usual is None or spread is None or looks < _QUICK_LOOKS:
        return min(LOOK_SECONDS_MAX, grown)
    close = max(FIRST_LOOK_SECONDS, usual * _CLOSE, spread * _STEP)
    earliest = max(0.0, usual - _SPREADS * spread) * (1.0 - _CLOSE)
    if age < earliest:
        return min(LOOK_SECONDS_MAX, max(FIRST_LOOK_SECONDS, earliest - age))
    late = max(0.0, age - usual - _SPREADS * spread)
    return min(LOOK_SECONDS_MAX, max(close, late * _STEP))


def seconds_after_faults(faults: int, asked_for: float | None = None) -> float:
    """The pause after so many unusable answers in a row, or a longer one if requested."""
    pause = min(LOOK_SECONDS_MAX, FAULT_SECONDS_MIN * 2.0 ** min(faults - 1, 10))
    return pause if asked_for is None else max(pause, asked_for)
