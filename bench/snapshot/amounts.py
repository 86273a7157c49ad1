"""The sizes of the snapshot scenario. Every measurement is bounded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Amounts:
    history: int = 10_000_000
    """Finished jobs before the load."""
    minutes: float = 30.0
    """For which the snapshot is held and the load goes on."""
    per_second: int = 200
    """Jobs that are submitted one by one, at fixed times."""
    paced_seconds: float = 20.0
    """Of each sample."""
    burst: int = 20_000
    """Jobs that are submitted at once, and drained, at the end of each sample."""
    organisations: int = 10

    @property
    def paced_jobs(self) -> int:
        return int(self.per_second * self.paced_seconds)


FULL = Amounts()
QUICK = Amounts(history=200_000, minutes=3.0, paced_seconds=8.0, burst=10_000)
