"""The sizes of all measurements. Every measurement is bounded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """The full run's amounts; `QUICK` is for a look in a minute or two, not for a verdict."""

    enqueue_warm_up_seconds: float = 0.5
    enqueue_seconds: float = 2.0
    bulk_jobs: int = 100_000
    bulk_seconds_max: float = 3.0
    drain_seconds_aim: float = 2.4
    drain_seconds_min: float = 2.0
    drain_jobs_max: int = 200_000
    paced_jobs: int = 40
    finished_rows: int = 1_000_000
    http_warm_up_seconds: float = 1.0
    http_seconds: float = 5.0


IN_FLIGHT = 64
PACED_INTERVAL_SECONDS = 0.1
PACED_WARM_UP_JOBS = 5

FULL = Sizes()
QUICK = Sizes(
    enqueue_seconds=1.0,
    bulk_jobs=20_000,
    bulk_seconds_max=2.0,
    drain_seconds_aim=1.0,
    drain_seconds_min=0.3,
    paced_jobs=20,
    finished_rows=50_000,
    http_seconds=2.0,
)
