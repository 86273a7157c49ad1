"""Explanations: why a job waits or what it is doing, and how long that may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID


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
