"""Snapshots of a process's metrics, which can be stored, merged, and shown as Prometheus text.

Counters of all processes are added. Gauges are added, or their maximum or minimum is used, as
declared, and only of live processes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

Across = Literal["sum", "max", "min"]
"""How a gauge of several processes is combined."""

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]
"""A sample's name and its sorted labels."""

OTHER: Final = "other"
"""The label value for everything beyond a limit."""
_GAUGE: Final = "gauge"
_BUCKET_LABEL: Final = "le"
_CREATED: Final = "_created"
_FAST: Final = 1


class Family(msgspec.Struct, array_like=True):
    """A metric with its samples, and its declaration, so that another version can show it."""

    name: str
    kind: str
    text: str
    across: Across
    samples: dict[Series, float]


class _StoredSample(msgspec.Struct, array_like=True):
    """A family as stored: msgpack map keys must be plain there."""

    name: str
    kind: str
    text: str
    across: Across
    samples: list[tuple[str, Labels, float]]


Snapshot = dict[str, Family]
"""Families by name."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[_StoredSample])


def take_snapshot(registry: CollectorRegistry, across: Mapping[str, Across]) -> Snapshot:
    """A snapshot of a registry."""
    snapshot: Snapshot = {}
    for metric in registry.collect():
        samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
            for sample in metric.samples
            # The creation time of a counter is not a count.
            if metric.type == _GAUGE or not sample.name.endswith(_CREATED)
        }
        snapshot[metric.name] = Family(
            metric.name, metric.type, metric.documentation, across.get(metric.name, "sum"), samples
        )
    return snapshot


def encoded(snapshot: Snapshot) -> bytes:
    """Encode for storage. Compressed here: names and labels repeat, and the server is busy."""
    stored = [
        _StoredSample(
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
    """Decode a stored snapshot; no bytes are an empty snapshot."""
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


def labelled(snapshot: Snapshot, labels: Labels) -> Snapshot:
    """``snapshot`` with these labels on every sample."""
    return {
        family.name: Family(
            family.name,
            family.kind,
            family.text,
            family.across,
            {
                (name, tuple(sorted([*given, *labels]))): value
                for (name, given), value in family.samples.items()
            },
        )
        for family in snapshot.values()
    }


def counts(snapshot: Snapshot) -> Snapshot:
    """The part that stays true after a process has ended: its counters, without its gauges."""
    return {name: family for name, family in snapshot.items() if family.kind != _GAUGE}


def merged(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Combine snapshots into one."""
    whole: Snapshot = {}
    for snapshot in snapshots:
        for name, family in snapshot.items():
            known = whole.get(name)
            if known is None:
                whole[name] = Family(
                    name, family.kind, family.text, family.across, dict(family.samples)
                )
            elif known.kind == family.kind:  # another version may have used the name differently
                _add(known, family)
    return whole


def less(snapshot: Snapshot, baseline: Snapshot) -> Snapshot:
    """``snapshot`` with ``baseline`` subtracted from its counters."""
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
    """Limit each metric to ``rows_max`` label sets; the smallest are merged into "other".

    Labels are bounded within each process; the sum over years of processes must be bounded, too.
    """
    return {name: _bounded(family, rows_max) for name, family in snapshot.items()}


def render(*snapshots: Snapshot) -> bytes:
    """Render as Prometheus text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_SnapshotCollector(snapshots))
    return generate_latest(registry)


class _SnapshotCollector(Collector):
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
    """The labels that identify a set of samples: all but a histogram's bounds."""
    return tuple(label for label in labels if label[0] != _BUCKET_LABEL)
