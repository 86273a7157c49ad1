"""The names of the report's figures, and which direction is better."""

from dataclasses import dataclass, fields
from enum import StrEnum


class Scenario(StrEnum):
    """The values of --scenarios. One scenario may give several figures."""

    ENQUEUE = "enqueue"
    BULK = "bulk"
    DRAIN_1 = "drain1"
    DRAIN_2 = "drain2"
    LATENCY = "latency"
    CLAIM = "claim"
    HTTP = "http"
    BATCHES = "batches"
    LLM = "llm"
    REMOTE = "remote"
    DASHBOARD = "dashboard"
    FOOTPRINT = "footprint"
    ABLATION = "ablation"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True)
class Figure:
    """One row of the table."""

    key: str
    title: str
    unit: str
    more_is_better: bool


ENQUEUE = Figure("enqueue", "enqueue, 64 in flight", "jobs/s", more_is_better=True)
BULK = Figure("bulk", "bulk enqueue", "jobs/s", more_is_better=True)
DRAIN_1 = Figure("drain1", "drain, 1 worker process", "jobs/s", more_is_better=True)
DRAIN_2 = Figure("drain2", "drain, 2 worker processes", "jobs/s", more_is_better=True)
START_P50 = Figure("start_p50", "start latency p50, 10 jobs/s", "ms", more_is_better=False)
START_P99 = Figure("start_p99", "start latency p99, 10 jobs/s", "ms", more_is_better=False)
SEEN_P50 = Figure("seen_p50", "result seen by a waiter p50", "ms", more_is_better=False)
SEEN_P99 = Figure("seen_p99", "result seen by a waiter p99", "ms", more_is_better=False)
CLAIM_EMPTY = Figure("claim_empty", "claim, empty table", "us/job", more_is_better=False)
CLAIM_HISTORY = Figure("claim_history", "claim, long history", "us/job", more_is_better=False)

FIGURES = (
    ENQUEUE,
    BULK,
    DRAIN_1,
    DRAIN_2,
    START_P50,
    START_P99,
    SEEN_P50,
    SEEN_P99,
    CLAIM_EMPTY,
    CLAIM_HISTORY,
)


@dataclass(frozen=True)
class CostFigures:
    """What a job costs in a drain: a table of its own."""

    workers: Figure
    serving: Figure
    background: Figure
    total: Figure
    wal: Figure
    transactions: Figure

    @property
    def rows(self) -> tuple[Figure, ...]:
        return tuple(getattr(self, each.name) for each in fields(self))

    @classmethod
    def of(cls, drain: Figure, workers: str) -> "CostFigures":
        def figure(key: str, title: str, unit: str) -> Figure:
            return Figure(f"{drain.key}_{key}", f"{workers}: {title}", unit, more_is_better=False)

        return cls(
            figure("cpu_workers", "CPU of the workers", "us/job"),
            figure("cpu_serving", "CPU of what served them", "us/job"),
            figure("cpu_background", "CPU of the server's other processes", "us/job"),
            figure("cpu", "CPU in all", "us/job"),
            figure("wal", "write-ahead log", "bytes/job"),
            figure("transactions", "transactions that wrote", "per 1,000 jobs"),
        )


DRAIN_COSTS = {
    DRAIN_1: CostFigures.of(DRAIN_1, "1 worker process"),
    DRAIN_2: CostFigures.of(DRAIN_2, "2 worker processes"),
}
