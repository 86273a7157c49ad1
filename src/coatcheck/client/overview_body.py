"""Data types for the overview: rates, backlogs, latencies, workers."""

from __future__ import annotations

from datetime import datetime

import msgspec


class OverviewPoint(msgspec.Struct, frozen=True):
    """What happened in a time span that begins ``at``.

    Latencies are in seconds: from due to claimed (``start``), and in the handler (``run``); None
    if there were none.
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
    """The number of jobs of a lane by state. ``held`` are with a worker.

    Unless ``exact``, more are queued than the server has counted.
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

    Only for callers with the scope ``admin``. Unless ``exact``, more are queued than counted.
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
    """A worker, for operators. ``held`` is how many jobs it has, ``slots`` how many it runs at once
    in each of its ``lanes``."""

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
    """A summary of an organisation; ``org_id`` is ``*`` for all of them.

    ``series`` has a point for each ``bucket_seconds``, oldest first. Only operators see
    ``workers``; everybody sees ``workers_alive``.
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
