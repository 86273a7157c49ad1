"""Histograms of durations with fixed buckets.

Each bucket is wider than the last by the square root of two, from a millisecond to a day. So a
quantile from the counts is at most two fifths off, usually far less, and the counts of any number
of processes and minutes can simply be added.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, zip_longest
from typing import Final

_FIRST_SECONDS: Final = 0.001
_STEPS: Final = 53
BOUNDS_SECONDS: Final = tuple(_FIRST_SECONDS * 2 ** (step / 2) for step in range(_STEPS + 1))
"""The upper bounds of the buckets; the last bucket has none."""
BUCKETS: Final = len(BOUNDS_SECONDS) + 1


def bucket_of(seconds: float) -> int:
    """The index of a duration's bucket."""
    return bisect_left(BOUNDS_SECONDS, seconds)


def quantile(counts: Sequence[int], share: float) -> float | None:
    """The quantile ``share`` in seconds; None if there are no durations.

    Assumes an even spread within a bucket.
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
    """The quantile of individual durations."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summed(distributions: Sequence[Sequence[int]]) -> list[int]:
    """The sum of several histograms, which may differ in length."""
    return [*map(sum, zip_longest(*distributions, fillvalue=0))]


def trimmed(counts: Sequence[int]) -> Sequence[int]:
    """The counts without empty buckets at the end."""
    end = len(counts)
    while end and not counts[end - 1]:
        end -= 1
    return counts[:end]
