"""Whether a series grows: a robust line through the second half of it.

The first half is for warming up: caches fill, pools open, retention begins to delete. The second
half is cut into twelve windows, and the median of each is a point: that smooths values that go up
and down all the time, as dead rows do between two vacuums. The line through the points is that of
Theil and Sen: its slope is the median of the slopes between any two points, which an outlier does
not move. Its confidence interval comes from the spread of those slopes, as Sen derives it from
Kendall's statistic.

A series grows if even the lower end of the 95 % interval, over the whole second half, adds up to
more than its tolerance: a part of its level, and never less than an amount that means something.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

CERTAINTY: Final = 1.96
"""Standard deviations to either side: 95 %."""
WINDOWS: Final = 12
POINTS_MIN: Final = 8
"""The minimum number of windows with values."""


@dataclass(frozen=True)
class Tolerance:
    """The allowed growth of a series over the second half: ``part`` of its level, or ``amount``."""

    part: float
    amount: float

    def of(self, level: float) -> float:
        return max(self.part * abs(level), self.amount)


@dataclass(frozen=True)
class Slope:
    """The slope of the second half. Growth is over that whole half, in the series' unit."""

    level: float
    growth: float
    growth_at_least: float
    growth_at_most: float
    tolerance: float

    @property
    def grows(self) -> bool:
        return self.growth_at_least > self.tolerance

    @property
    def part(self) -> float:
        """Its growth as a part of its level."""
        return self.growth / self.level if self.level else 0.0


def slope_of(times: Sequence[float], values: Sequence[float], tolerance: Tolerance) -> Slope | None:
    """The slope of the second half; None if there are too few points in it."""
    points = _points(times, values)
    if len(points) < POINTS_MIN:
        return None
    slopes = sorted(
        (later - earlier) / (at - before)
        for (before, earlier), (at, later) in combinations(points, 2)
    )
    level = statistics.median(v for _, v in points)
    span = (times[-1] - times[0]) / 2
    low, high = _interval(len(points), len(slopes))
    return Slope(
        level=level,
        growth=statistics.median(slopes) * span,
        growth_at_least=slopes[low] * span,
        growth_at_most=slopes[high] * span,
        tolerance=tolerance.of(level),
    )


def _points(times: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """The middle of each window of the second half, and the median of what is in it."""
    if not times or times[-1] == times[0]:
        return []
    middle, end = (times[0] + times[-1]) / 2, times[-1]
    width = (end - middle) / WINDOWS
    windows: list[list[float]] = [[] for _ in range(WINDOWS)]
    for time, value in zip(times, values, strict=True):
        if time >= middle:
            windows[min(WINDOWS - 1, int((time - middle) / width))].append(value)
    return [
        (middle + width * (number + 0.5), statistics.median(window))
        for number, window in enumerate(windows)
        if window
    ]


def _interval(points: int, slopes: int) -> tuple[int, int]:
    """The indexes of the sorted slopes that bound the interval (Sen 1968, no ties)."""
    spread = CERTAINTY * math.sqrt(points * (points - 1) * (2 * points + 5) / 18)
    low = round((slopes - spread) / 2)
    return max(0, low), min(slopes - 1, slopes - 1 - low)
