"""What the product's metrics are made of: Prometheus' own, and a little more."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from coatcheck.telemetry.snapshots import OTHER, Across


class Declared(NamedTuple):
    """What a metric says of itself."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: Sequence[str]


REGISTRY: Final = CollectorRegistry()
"""Everything that this process says of itself."""

ACROSS: Final[dict[str, Across]] = {}
"""How gauges of several processes become one; one that is not here is summed."""

DECLARED: Final[list[Declared]] = []
"""All of them, in the order in which they are declared."""

LABEL_VALUES_MAX: Final = 200
"""How many values a label may have in a process whose values people make up."""


class BatchHistogram(Histogram):
    """A histogram that takes many values for little more than the price of one."""

    def observe_many(self, values: Sequence[float]) -> None:
        touched = Tally(bisect_left(self._upper_bounds, value) for value in values)
        for bucket, count in touched.items():
            self._buckets[bucket].inc(count)
        self._sum.inc(sum(values))

    def add_counts(self, bounds: Sequence[float], counts: Sequence[int]) -> None:
        """Take values that were counted in buckets already, each at most its bound.

        Each of ours has to be one of ``bounds``. The sum is what it would be if each value lay in
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
    """Keeps a label from having more values than a bound: what comes after is "other"."""

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
    DECLARED.append(Declared(name, "counter", text, labels))
    return Counter(name, text, labels, registry=REGISTRY)


def gauge(name: str, text: str, *labels: str, across: Across = "sum") -> Gauge:
    ACROSS[name] = across
    DECLARED.append(Declared(name, "gauge", text, labels))
    return Gauge(name, text, labels, registry=REGISTRY)


def histogram(name: str, text: str, *labels: str, buckets: Sequence[float]) -> BatchHistogram:
    DECLARED.append(Declared(name, "histogram", text, labels))
    return BatchHistogram(name, text, labels, buckets=tuple(buckets), registry=REGISTRY)
