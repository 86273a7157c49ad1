"""The sizes of the dashboard scenario. Every measurement is bounded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Amounts:
    few: int = 10_000
    many: int = 5_000_000
    """Jobs of one organisation, 90 % of them completed."""
    waiting: int = 2_000
    """Unfinished jobs among them: the same number in both histories."""
    times: int = 100
    """The number of requests per page."""


FULL = Amounts()
QUICK = Amounts(many=200_000, times=20)
