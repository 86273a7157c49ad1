"""When jobs may start and end, from what others have taken of late. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from coatcheck.domain.durations import quantile, quantile_of
from coatcheck.domain.explanation import Eta

RETRY_AFTER_SECONDS_MIN: Final = 1
RETRY_AFTER_SECONDS_MAX: Final = 60
DUE_SECONDS_MAX: Final = 3_600
"""Who is told to come back when a job is due is not sent away for longer: it may be cancelled."""
SHARE: Final = 0.5
"""Asking at half the time that is left finds the end sooner, at the price of a few more asks."""
_SAMPLES_MIN: Final = 5
_FRACTION_MIN: Final = 0.02
_SLOW: Final = 0.1
"""Of the minutes of late, the share that was slower than what nine of ten forecasts go by."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A time that half, and one that nine of ten, stay within."""

    p50: float
    p90: float

    def less(self, seconds: float) -> Spread:
        """What is left of it after so many seconds, for one that is not over by then: the longer it
        has taken, the longer it may still take."""
        return Spread(_left(self.p50, seconds), _left(self.p90, seconds))


def _left(usual: float, passed: float) -> float:
    return usual - passed if usual > passed else passed / 2


def spread_of(samples: Sequence[float], counts: Sequence[int]) -> Spread | None:
    """From durations of jobs alike, or, if they are too few, from those of the whole lane."""
    if len(samples) >= _SAMPLES_MIN:
        p50, p90 = quantile_of(samples, 0.5), quantile_of(samples, 0.9)
    else:
        p50, p90 = quantile(counts, 0.5), quantile(counts, 0.9)
        if p50 is None and samples:
            p50, p90 = quantile_of(samples, 0.5), max(samples)
    return None if p50 is None or p90 is None else Spread(p50, p90)


def rates_of(minutes: Sequence[tuple[int, float]]) -> tuple[float, float] | None:
    """How many are started in a second: usually, and in a slow minute. From the minutes of late in
    which any were, each with how many and how many seconds of it have passed."""
    rates = sorted(started / max(1.0, seconds) for started, seconds in minutes if started)
    if not rates:
        return None
    return rates[len(rates) // 2], rates[int(_SLOW * len(rates))]


def start_of(ahead: int, flows: int, rates: tuple[float, float]) -> Spread:
    """When a job starts that has so many before it in its line, if so many lines take turns."""
    turns = (ahead + 1) * max(1, flows)
    usual, slow = rates
    return Spread(turns / usual, turns / slow)


def end_by_progress(elapsed: float, fraction: float | None) -> Spread | None:
    """When a job ends that says how far it is."""
    if fraction is None or not _FRACTION_MIN <= fraction <= 1:
        return None
    left = elapsed * (1 - fraction) / fraction
    return Spread(left, 2 * left)


def eta_of(start: Spread | None, run: Spread | None) -> Eta | None:
    """Both together; ``start`` is None for a job that has begun, whose ``run`` is what is left."""
    if run is None:
        return None
    begin = start or Spread(0.0, 0.0)
    return Eta(begin.p50, begin.p90, begin.p50 + run.p50, begin.p90 + run.p90)


def retry_after(seconds: float) -> int:
    """When to ask again about a job that ends in about so many seconds."""
    return _within(seconds * SHARE, RETRY_AFTER_SECONDS_MAX)


def retry_when_due(seconds: float) -> int:
    """When to ask again about a job before whose time, in so many seconds, nothing happens."""
    return _within(seconds, DUE_SECONDS_MAX)


def _within(seconds: float, most: int) -> int:
    return max(RETRY_AFTER_SECONDS_MIN, min(math.ceil(seconds), most))
