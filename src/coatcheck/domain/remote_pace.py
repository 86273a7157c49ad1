"""When to look at work that is done elsewhere.

Early on, looks come fast: short work is done at once, and so are most mistakes. Then they wait
until such work may be done, by what it usually takes and how far from that it usually is; come
close together while it may; and thin out again behind that. Of what is not known to take any time,
looks come in steps that grow with its age, so that no result waits for longer than a part of it.
"""

from __future__ import annotations

from typing import Final

FIRST_LOOK_SECONDS: Final = 0.2
LOOK_SECONDS_MAX: Final = 30.0
_STEP: Final = 0.25
"""Of its age, or of the time it is late by."""
_SPREADS: Final = 2.0
"""So many times what work is usually off by, it may be early or late."""
_CLOSE: Final = 0.05
"""While it may be done, looks are this part of the usual time apart, or a part of its spread."""
_QUICK_LOOKS: Final = 2

FAULT_SECONDS_MIN: Final = 1.0
"""Until whoever said nothing sensible is asked again; doubled for every time in a row."""


def seconds_to_next_look(
    age: float, looks: int, usual: float | None, spread: float | None
) -> float:
    """The pause after the ``looks``-th look at work that was spawned ``age`` seconds ago."""
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
    """The pause after so many answers in a row that said nothing, or a longer one if asked for."""
    pause = min(LOOK_SECONDS_MAX, FAULT_SECONDS_MIN * 2.0 ** min(faults - 1, 10))
    return pause if asked_for is None else max(pause, asked_for)
