"""Why a job waits, or what it is doing, and how long that may take: what people are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID


class BlockerKind(StrEnum):
    """What keeps a job from its end, the strongest reason first."""

    PAUSED = "paused"
    """A limit of none is set on it."""
    SCHEDULED = "scheduled"
    """It is due later."""
    WAITING_FOR_INPUT = "waiting_for_input"
    """Its input is not whole yet."""
    TARGET_UNREACHABLE = "target_unreachable"
    """What it calls cannot be reached; that costs no attempt."""
    BACKOFF = "backoff"
    """Its last attempt failed, and the next one is due later."""
    NO_WORKER = "no_worker"
    """Nobody who serves its endpoint and lane was heard of lately."""
    THREADS_HELD = "threads_held"
    """Whoever serves it has no thread left: handlers that were given up go on running."""
    CONCURRENCY_LIMIT = "concurrency_limit"
    """As many are held as a limit allows."""
    RATE_LIMIT = "rate_limit"
    """As many were started as its rate allows."""
    LANE_FULL = "lane_full"
    """Whoever serves it has no slot of its lane free."""
    QUEUED_BEHIND = "queued_behind"
    """Others stand before it in its line."""
    HEARTBEAT_LOST = "heartbeat_lost"
    """Its worker fell silent."""
    MODEL_LOADING = "model_loading"
    """Its model is being loaded."""
    RUNNING = "running"
    RUNNING_ELSEWHERE = "running_elsewhere"


class Holder(NamedTuple):
    """A job that uses a limit up, and whose it is."""

    uuid: UUID
    owner: str


@dataclass(frozen=True, slots=True)
class Blocker:
    """One thing that a job waits for. ``is_shared``: its numbers are of all organisations."""

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
    """When a job may start and end, in seconds from now: half, and nine of ten, do by then. A job
    that has started has no start to come: 0."""

    start_p50: float
    start_p90: float
    end_p50: float
    end_p90: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything there is to say. ``position`` counts from 1, in the job's own line and lane."""

    job_id: str
    state: str
    terminal: bool
    summary: str
    blockers: Sequence[Blocker] = ()
    position: int | None = None
    eta: Eta | None = None
    retry_after: int = 0
