"""The names of the snapshot scenario's figures. Each sample has a value of each."""

from dataclasses import dataclass
from enum import StrEnum


class SnapshotFigure(StrEnum):
    MINUTE = "minute"
    PACED_CLAIM = "paced_claim_us"
    BURST_CLAIM = "burst_claim_us"
    BURST_RATE = "burst_per_second"
    PACED_MAINTENANCE = "paced_maintenance_percent"
    PACED_TOTAL = "paced_server_us"


@dataclass(frozen=True)
class Row:
    """A figure in the report: its greatest, or least, ratio of the end to the beginning."""

    figure: SnapshotFigure
    title: str
    ratio_max: float | None = None
    ratio_min: float | None = None


ROWS = (
    Row(SnapshotFigure.PACED_CLAIM, "claims and completions, paced: CPU (us/job)", ratio_max=1.1),
    Row(SnapshotFigure.BURST_CLAIM, "claims and completions, burst: CPU (us/job)", ratio_max=1.1),
    Row(SnapshotFigure.BURST_RATE, "a burst, until it is drained (jobs/s)", ratio_min=0.95),
    Row(SnapshotFigure.PACED_TOTAL, "the whole server, paced: CPU (us/job)"),
    Row(SnapshotFigure.PACED_MAINTENANCE, "maintenance, paced (% of a core)"),
)

TABLES = ("jobs", "queue", "claims", "job_expiries")


def dead(table: str) -> str:
    """Row versions that nobody will read again, and vacuum may not remove."""
    return f"{table}_dead"


def table_mb(table: str) -> str:
    return f"{table}_table_mb"


def index_mb(table: str) -> str:
    return f"{table}_index_mb"
