"""Metric types: Prometheus' own, with batch updates and bounded labels."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from coatcheck.telemetry.snapshots import OTHER, Across


class DeclaredMetric(NamedTuple):
    """The declaration of a metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: Sequence[str]


REGISTRY: Final = CollectorRegistry()
"""All metrics of this process."""

ACROSS: Final[dict[str, Across]] = {}
"""How a gauge is combined over several processes; one not listed here is summed."""

DECLARED: Final[list[DeclaredMetric]] = []
"""All declarations, in order."""

LABEL_VALUES_MAX: Final = 200
"""How many values a user-defined label may have in one process."""


class BatchHistogram(Histogram):
    """A histogram that records many values for little more than the cost of one."""

    def observe_many(self, values: Sequence[float]) -> None:
        touched = Tally(bisect_left(self._upper_bounds, value) for value in values)
        for bucket, count in touched.items():
            self._buckets[bucket].inc(count)
        self._sum.inc(sum(values))

    def add_counts(self, bounds: Sequence[float], counts: Sequence[int]) -> None:
        """Add values that were already counted in buckets with these upper bounds.

        Each of our own bounds must be one of ``bounds``. The sum assumes that each value lies in
        the middle of its bucket.
        """
        lower = 0.0
        for at, count in enumerate(counts):
            upper = bounds[at] if at < len(bounds) else lower
            if count:
                self._buckets[bisect_left(self._upper_bounds, upper)].inc(count)
                self._sum.inc(count * (lower + upper) / 2)
            lower = upper


class Bounded:
    """Limits the number of values of a label; further values become "other"."""

    def __init__(self, values_max: int = LABEL_VALUES_MAX) -> None:
        self._values_max = values_max
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._values_max:
            return OTHER
        self._known.add(value)
        return value


def counter(name: str, text: str, *labels: str) -> Counter:
    DECLARED.append(DeclaredMetric(name, "counter", text, labels))
    return Counter(name, text, labels, registry=REGISTRY)


def gauge(name: str, text: str, *labels: str, across: Across = "sum") -> Gauge:
    ACROSS[name] = across
    DECLARED.append(DeclaredMetric(name, "gauge", text, labels))
    return Gauge(name, text, labels, registry=REGISTRY)


def histogram(name: str, text: str, *labels: str, buckets: Sequence[float]) -> BatchHistogram:
    DECLARED.append(DeclaredMetric(name, "histogram", text, labels))
    return BatchHistogram(name, text, labels, buckets=tuple(buckets), registry=REGISTRY)
