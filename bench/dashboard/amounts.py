"""The sizes of the dashboard scenario. Every measurement is bounded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Amounts:
    few: int = 10_000
    many: int = 5_000_000
    """Jobs, of one organisation, nine out of ten of which have ended well."""
    waiting: int = 2_000
    """Of them, those that have not ended: the same in both histories."""
    times: int = 100
    """That each page is asked for."""


FULL = Amounts()
QUICK = Amounts(many=200_000, times=20)
