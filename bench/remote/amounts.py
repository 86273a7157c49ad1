"""The sizes of the remote scenario."""

from dataclasses import dataclass

SLOTS = 4
"""Of the worker: how many it spawns at a time."""
SECONDS = (20.0, 40.0)
"""How long a job takes over there, by chance."""
RESULT_BYTES = 16_384


@dataclass(frozen=True)
class Amounts:
    jobs: int = 500


FULL = Amounts()
QUICK = Amounts(jobs=100)
