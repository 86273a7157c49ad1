"""What the server says of everything at once: rates, backlogs, latencies, workers."""

from __future__ import annotations

from datetime import datetime

import msgspec


class OverviewPoint(msgspec.Struct, frozen=True):
    """What happened in one span of time that begins ``at``.

    The latencies are seconds: from being due to being taken (``start``), and in the handler
    (``run``); None if nothing was.
    """

    at: datetime
    submitted: int = 0
    started: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    rescued: int = 0
    start_p50: float | None = None
    start_p99: float | None = None
    run_p50: float | None = None
    run_p99: float | None = None


class LaneBacklog(msgspec.Struct, frozen=True):
    """How many jobs of a lane stand where. ``held`` are with a worker.

    Unless ``exact``, more is queued than the server has counted.
    """

    lane: str
    staged: int = 0
    queued: int = 0
    retrying: int = 0
    held: int = 0
    oldest_queued_seconds: float | None = None
    exact: bool = True


class FlowBacklog(msgspec.Struct, frozen=True):
    """One of the longest queues: of an organisation's service, model or batch.

    Shown to callers with the scope ``admin``. Unless ``exact``, more is queued than was counted.
    """

    org_id: str
    flow: str
    label: str
    lane: str
    queued: int = 0
    held: int = 0
    endpoint: str = ""
    exact: bool = True


class FailureCount(msgspec.Struct, frozen=True):
    """How many jobs failed with a code."""

    code: str
    count: int


class WorkerStatus(msgspec.Struct, frozen=True):
    """A worker, as operators are shown it. ``held`` is how many jobs it has, ``slots`` how many it
    runs at a time of each of its ``lanes``."""

    boot: int
    name: str = ""
    version: str = ""
    alive: bool = True
    started_at: datetime | None = None
    last_seen_at: datetime | None = None
    lanes: tuple[str, ...] = ()
    slots: tuple[int, ...] = ()
    endpoints: tuple[str, ...] = ()
    held: int = 0


class Overview(msgspec.Struct, frozen=True):
    """An organisation at a glance; ``org_id`` is ``*`` if it is all of them.

    ``series`` has a point for each ``bucket_seconds``, the oldest first. ``workers`` are shown to
    operators only, ``workers_alive`` to everybody.
    """

    org_id: str
    generated_at: datetime
    bucket_seconds: float
    series: tuple[OverviewPoint, ...] = ()
    lanes: tuple[LaneBacklog, ...] = ()
    flows: tuple[FlowBacklog, ...] = ()
    failures: tuple[FailureCount, ...] = ()
    workers_alive: int = 0
    workers: tuple[WorkerStatus, ...] = ()
