"""The results of a run: stored per round, summarised at the end, written as JSON."""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.batches.memory import Memory
from bench.catalogue import Figure
from bench.measure import Spread


@dataclass
class Results:
    """One value per contender, figure and round, and the facts around them."""

    facts: dict[str, Any] = field(default_factory=dict)
    rounds: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    samples: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    http: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    batches: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    batches_memory: Memory = field(default_factory=Memory)
    llm: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    remote: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    dashboard: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    footprint: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    ablation: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    snapshot: list[dict[str, float]] = field(default_factory=list)
    kept: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    skipped: dict[str, str] = field(default_factory=dict)

    def add(self, contender: str, figure: Figure, value: float) -> None:
        self.rounds[contender][figure.key].append(value)

    def add_samples(self, contender: str, figure: Figure, values: list[float]) -> None:
        """Keeps every single latency, so that a reader can take other percentiles."""
        self.samples[contender][figure.key].extend(values)

    def spread(self, contender: str, figure: Figure) -> Spread | None:
        values = self.rounds.get(contender, {}).get(figure.key)
        return Spread.of(values) if values else None

    def ratio(self, contender: str, reference: str, figure: Figure) -> float | None:
        """The ratio to the reference: above 1 is better, for every figure."""
        mine, theirs = self.spread(contender, figure), self.spread(reference, figure)
        if mine is None or theirs is None:
            return None
        ratio = mine.median / theirs.median
        return ratio if figure.more_is_better else 1 / ratio

    def write(self, path: Path) -> None:
        document = {
            "facts": self.facts,
            "rounds": self.rounds,
            "http": self.http,
            "kept": self.kept,
            "failures": self.failures,
            "skipped": self.skipped,
            "latency_samples_ms": self.samples,
        }
        path.write_text(json.dumps(document, indent=1) + "\n")
