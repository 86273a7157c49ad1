"""The names and units of the remote scenario's figures."""

from dataclasses import dataclass
from enum import StrEnum


class RemoteFigure(StrEnum):
    SPAWNED = "spawned"
    IN_FLIGHT = "in_flight"
    POLLS_RATE = "polls_rate"
    POLLS_PER_JOB = "polls_per_job"
    LATE_P50 = "late_p50"
    LATE_P95 = "late_p95"
    LATE_MAX = "late_max"
    SHARE_P50 = "share_p50"
    SHARE_P95 = "share_p95"
    SHARE_MAX = "share_max"
    WORKER_CPU = "worker_cpu"
    WORKER_MS = "worker_ms"


@dataclass(frozen=True)
class Row:
    figure: RemoteFigure
    title: str
    unit: str


ROWS = (
    Row(RemoteFigure.SPAWNED, "all submitted and spawned", "s"),
    Row(RemoteFigure.IN_FLIGHT, "most in flight on the remote", "jobs"),
    Row(RemoteFigure.POLLS_RATE, "polls while they run", "1/s"),
    Row(RemoteFigure.POLLS_PER_JOB, "polls of a job, mean", "polls"),
    Row(RemoteFigure.LATE_P50, "completed after the remote was done, p50", "ms"),
    Row(RemoteFigure.LATE_P95, "completed after the remote was done, p95", "ms"),
    Row(RemoteFigure.LATE_MAX, "completed after the remote was done, at most", "ms"),
    Row(RemoteFigure.SHARE_P50, "the same, of what the job took, p50", "%"),
    Row(RemoteFigure.SHARE_P95, "the same, of what the job took, p95", "%"),
    Row(RemoteFigure.SHARE_MAX, "the same, of what the job took, at most", "%"),
    Row(RemoteFigure.WORKER_CPU, "the worker's CPU, of one core", "%"),
    Row(RemoteFigure.WORKER_MS, "the worker's CPU of a job", "ms"),
)
