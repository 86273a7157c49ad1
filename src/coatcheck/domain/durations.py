"""Distributions of durations: how many fell into each of a fixed row of buckets.

Each bucket is wider than the one before by the square root of two, from a millisecond to a day, so
that a quantile read from the counts is at most two fifths off, mostly far less, and counts of any
number of processes and minutes can simply be added.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, zip_longest
from typing import Final

_FIRST_SECONDS: Final = 0.001
_STEPS: Final = 53
BOUNDS_SECONDS: Final = tuple(_FIRST_SECONDS * 2 ** (step / 2) for step in range(_STEPS + 1))
"""The upper bound of each bucket but the last, which has none."""
BUCKETS: Final = len(BOUNDS_SECONDS) + 1


def bucket_of(seconds: float) -> int:
    """The number of the bucket that a duration falls into."""
    return bisect_left(BOUNDS_SECONDS, seconds)


def quantile(counts: Sequence[int], share: float) -> float | None:
    """What ``share`` of the durations do not exceed, in seconds; None if there are none.

    Within a bucket they are taken to be spread evenly.
    """
    sums = list(accumulate(counts))
    if not sums or sums[-1] == 0:
        return None
    rank = share * sums[-1]
    bucket = next(at for at, total in enumerate(sums) if total >= rank and counts[at])
    last = BOUNDS_SECONDS[-1]
    lower = 0.0 if bucket == 0 else BOUNDS_SECONDS[bucket - 1]
    upper = BOUNDS_SECONDS[bucket] if bucket < len(BOUNDS_SECONDS) else last
    before = sums[bucket] - counts[bucket]
    return lower + (upper - lower) * max(0.0, rank - before) / counts[bucket]


def quantile_of(seconds: Sequence[float], share: float) -> float | None:
    """The same of durations that are at hand one by one."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summed(distributions: Sequence[Sequence[int]]) -> list[int]:
    """Several as one; they may differ in length."""
    return [*map(sum, zip_longest(*distributions, fillvalue=0))]


def trimmed(counts: Sequence[int]) -> Sequence[int]:
    """Without the empty buckets at the end."""
    end = len(counts)
    while end and not counts[end - 1]:
        end -= 1
    return counts[:end]
