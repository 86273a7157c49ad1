"""The sizes of the batches scenario. Every measurement is bounded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Amounts:
    lines: int = 1_000_000
    other_lists: int = 4
    """Lists of the same length that are submitted but not run, for the spread."""
    urls: int = 2_000


FULL = Amounts()
QUICK = Amounts(lines=50_000, other_lists=2, urls=200)

WORKERS = 2
SMALL_TASKS = 10
