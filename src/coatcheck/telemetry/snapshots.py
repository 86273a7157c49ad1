"""The samples of a process as one value that can be stored, added up, and shown as Prometheus text.

Counts of processes are added. What is said of the present (a gauge) is added up or the largest or
smallest is taken, as it was declared, and only of processes that are there.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

Across = Literal["sum", "max", "min"]
"""What becomes of a gauge that several processes have."""

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]
"""A sample's name, and its labels in order."""

OTHER: Final = "other"
"""The label of what is beyond a bound."""
_GAUGE: Final = "gauge"
_BUCKET_LABEL: Final = "le"
_CREATED: Final = "_created"
_FAST: Final = 1


class Family(msgspec.Struct, array_like=True):
    """A metric: what it says of itself, so that another version can show it, and its samples."""

    name: str
    kind: str
    text: str
    across: Across
    samples: dict[Series, float]


class _Stored(msgspec.Struct, array_like=True):
    """A family as it is stored: a map's keys have to be plain there."""

    name: str
    kind: str
    text: str
    across: Across
    samples: list[tuple[str, Labels, float]]


Snapshot = dict[str, Family]
"""Families by name."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[_Stored])


def taken(registry: CollectorRegistry, across: Mapping[str, Across]) -> Snapshot:
    """What a registry has now."""
    snapshot: Snapshot = {}
    for metric in registry.collect():
        samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
            for sample in metric.samples
            # When a count began is no count.
            if metric.type == _GAUGE or not sample.name.endswith(_CREATED)
        }
        snapshot[metric.name] = Family(
            metric.name, metric.type, metric.documentation, across.get(metric.name, "sum"), samples
        )
    return snapshot


def encoded(snapshot: Snapshot) -> bytes:
    """As it is stored. Packed here: names and labels repeat, and the server is busy enough."""
    stored = [
        _Stored(
            family.name,
            family.kind,
            family.text,
            family.across,
            [(name, labels, value) for (name, labels), value in family.samples.items()],
        )
        for family in snapshot.values()
    ]
    return zlib.compress(_encoder.encode(stored), _FAST)


def decoded(data: bytes) -> Snapshot:
    """What was stored; nothing at all is a snapshot of nothing."""
    if not data:
        return {}
    return {
        stored.name: Family(
            stored.name,
            stored.kind,
            stored.text,
            stored.across,
            {(name, labels): value for name, labels, value in stored.samples},
        )
        for stored in _decoder.decode(zlib.decompress(data))
    }


def counts(snapshot: Snapshot) -> Snapshot:
    """What stays true of a process that has ended: its counts, and nothing of its present."""
    return {name: family for name, family in snapshot.items() if family.kind != _GAUGE}


def merged(snapshots: Iterable[Snapshot]) -> Snapshot:
    """All of them as one."""
    whole: Snapshot = {}
    for snapshot in snapshots:
        for name, family in snapshot.items():
            known = whole.get(name)
            if known is None:
                whole[name] = Family(
                    name, family.kind, family.text, family.across, dict(family.samples)
                )
            elif known.kind == family.kind:  # another version may have meant something else by it
                _add(known, family)
    return whole


def less(snapshot: Snapshot, baseline: Snapshot) -> Snapshot:
    """``snapshot``, its counts begun at ``baseline``."""
    return {
        name: Family(
            name,
            family.kind,
            family.text,
            family.across,
            {
                series: value - baseline[name].samples.get(series, 0.0)
                for series, value in family.samples.items()
            },
        )
        if family.kind != _GAUGE and name in baseline
        else family
        for name, family in snapshot.items()
    }


def bounded(snapshot: Snapshot, rows_max: int) -> Snapshot:
    """No metric with more than ``rows_max`` sets of labels: the smallest of them as one, "other".

    Labels are bounded in each process; the sum over years of processes has to be, too.
    """
    return {name: _bounded(family, rows_max) for name, family in snapshot.items()}


def shown(*snapshots: Snapshot) -> bytes:
    """Prometheus text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Shown(snapshots))
    return generate_latest(registry)


class _Shown(Collector):
    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterable[Metric]:
        for snapshot in self._snapshots:
            for family in snapshot.values():
                metric = Metric(family.name, family.text, family.kind)
                for (name, labels), value in family.samples.items():
                    metric.add_sample(name, dict(labels), value)
                yield metric


def _add(known: Family, family: Family) -> None:
    samples = known.samples
    for series, value in family.samples.items():
        if series not in samples:
            samples[series] = value
        elif known.across == "sum":
            samples[series] += value
        else:
            choose = max if known.across == "max" else min
            samples[series] = choose(samples[series], value)


def _bounded(family: Family, rows_max: int) -> Family:
    sizes: dict[Labels, float] = {}
    for (_, labels), value in family.samples.items():
        row = _row(labels)
        sizes[row] = sizes.get(row, 0.0) + value
    if len(sizes) <= rows_max:
        return family
    kept = set(sorted(sizes, key=sizes.__getitem__, reverse=True)[: rows_max - 1])
    samples: dict[Series, float] = {}
    for (name, labels), value in family.samples.items():
        series = (name, labels if _row(labels) in kept else _as_other(labels))
        samples[series] = samples.get(series, 0.0) + value
    return Family(family.name, family.kind, family.text, family.across, samples)


def _as_other(labels: Labels) -> Labels:
    return tuple((label, text if label == _BUCKET_LABEL else OTHER) for label, text in labels)


def _row(labels: Labels) -> Labels:
    """What tells one set of samples from another: all but a histogram's bounds."""
    return tuple(label for label in labels if label[0] != _BUCKET_LABEL)
