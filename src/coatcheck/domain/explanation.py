"""Explanations: why a job waits or what it is doing, and how long that may take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

from coatcheck.domain.durations import quantile, quantile_of

RETRY_AFTER_SECONDS_MIN: Final = 1
RETRY_AFTER_SECONDS_MAX: Final = 60
DUE_SECONDS_MAX: Final = 3_600
"""The longest delay until a due time: the job may be cancelled before."""
SHARE: Final = 0.5
"""Polling at half the remaining time finds the end sooner, for a few more polls."""
_SAMPLES_MIN: Final = 5
_FRACTION_MIN: Final = 0.02
_SLOW: Final = 0.1
"""The fraction of recent minutes that were slower than the p90 forecast assumes."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median and the 90th percentile of a duration."""

    p50: float
    p90: float

    def less(self, seconds: float) -> Spread:
        """What remains after ``seconds``, if it has not ended: the longer it has taken, the longer
        it may still take."""
        return Spread(_left(self.p50, seconds), _left(self.p90, seconds))


def _left(usual: float, passed: float) -> float:
    return usual - passed if usual > passed else passed / 2


def spread_of(samples: Sequence[float], counts: Sequence[int]) -> Spread | None:
    """From the durations of similar jobs, or, if there are too few, of the whole lane."""
    if len(samples) >= _SAMPLES_MIN:
        p50, p90 = quantile_of(samples, 0.5), quantile_of(samples, 0.9)
    else:
        p50, p90 = quantile(counts, 0.5), quantile(counts, 0.9)
        if p50 is None and samples:
            p50, p90 = quantile_of(samples, 0.5), max(samples)
    return None if p50 is None or p90 is None else Spread(p50, p90)


def rates_of(minutes: Sequence[tuple[int, float]]) -> tuple[float, float] | None:
    """Jobs started per second: usually, and in a slow minute. From the recent minutes with any
    starts, each with its number of starts and elapsed seconds."""
    rates = sorted(started / max(1.0, seconds) for started, seconds in minutes if started)
    if not rates:
        return None
    return rates[len(rates) // 2], rates[int(_SLOW * len(rates))]


def start_of(ahead: int, queues: int, rates: tuple[float, float]) -> Spread:
    """When a job starts that has ``ahead`` jobs before it in its queue, with ``queues`` queues."""
    turns = (ahead + 1) * max(1, queues)
    usual, slow = rates
    return Spread(turns / usual, turns / slow)


def end_by_progress(elapsed: float, fraction: float | None) -> Spread | None:
    """When a job ends, from its own progress."""
    if fraction is None or not _FRACTION_MIN <= fraction <= 1:
        return None
    left = elapsed * (1 - fraction) / fraction
    return Spread(left, 2 * left)


def eta_of(start: Spread | None, run: Spread | None) -> Eta | None:
    """Both combined; ``start`` is None for a job that has begun, and ``run`` is what remains."""
    if run is None:
        return None
    begin = start or Spread(0.0, 0.0)
    return Eta(begin.p50, begin.p90, begin.p50 + run.p50, begin.p90 + run.p90)


def retry_after(seconds: float) -> int:
    """When to poll again for a job that ends in about ``seconds``."""
    return _within(seconds * SHARE, RETRY_AFTER_SECONDS_MAX)


def retry_when_due(seconds: float) -> int:
    """When to poll again for a job that becomes due in ``seconds``."""
    return _within(seconds, DUE_SECONDS_MAX)


def _within(seconds: float, most: int) -> int:
    return max(RETRY_AFTER_SECONDS_MIN, min(math.ceil(seconds), most))


class BlockerKind(StrEnum):
    """What blocks a job, the strongest reason first."""

    PAUSED = "paused"
    """A limit of zero applies to it."""
    SCHEDULED = "scheduled"
    """It is due later."""
    WAITING_FOR_INPUT = "waiting_for_input"
    """Its input is incomplete."""
    TARGET_UNREACHABLE = "target_unreachable"
    """What it calls is unreachable; that spends no attempt."""
    BACKOFF = "backoff"
    """Its last attempt failed, and the next one is due later."""
    NO_WORKER = "no_worker"
    """No worker that serves its endpoint and lane was seen lately."""
    THREADS_HELD = "threads_held"
    """Its workers have no thread left: abandoned handlers are still running."""
    CONCURRENCY_LIMIT = "concurrency_limit"
    """A concurrency limit is reached."""
    RATE_LIMIT = "rate_limit"
    """A rate limit is reached."""
    LANE_FULL = "lane_full"
    """Its workers have no free slot in its lane."""
    QUEUED_BEHIND = "queued_behind"
    """Other jobs are ahead of it in its queue."""
    HEARTBEAT_LOST = "heartbeat_lost"
    """Its worker went silent."""
    MODEL_LOADING = "model_loading"
    """Its model is being loaded."""
    RUNNING = "running"
    RUNNING_ELSEWHERE = "running_elsewhere"


class Holder(NamedTuple):
    """A job that holds a part of a limit, and its owner."""

    uuid: UUID
    owner: str


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason why a job waits. ``is_shared``: its numbers cover all organisations."""

    kind: BlockerKind
    message: str
    key: str | None = None
    limit: float | None = None
    held: int | None = None
    holders: Sequence[Holder] = ()
    since: datetime | None = None
    until: datetime | None = None
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Eta:
    """When a job may start and end, in seconds from now: the median and the 90th percentile. The
    start of a job that has started is 0."""

    start_p50: float
    start_p90: float
    end_p50: float
    end_p90: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The full explanation. ``position`` counts from 1, in the job's own queue and lane."""

    job_id: str
    state: str
    terminal: bool
    summary: str
    blockers: Sequence[Blocker] = ()
    position: int | None = None
    eta: Eta | None = None
    retry_after: int = 0
