"""The sizes of the remote scenario."""

from dataclasses import dataclass

SLOTS = 4
"""The worker's slots: how many jobs it spawns at a time."""
SECONDS = (20.0, 40.0)
"""The random duration of a job on the remote."""
RESULT_BYTES = 16_384


@dataclass(frozen=True)
class Amounts:
    jobs: int = 500


FULL = Amounts()
QUICK = Amounts(jobs=100)
