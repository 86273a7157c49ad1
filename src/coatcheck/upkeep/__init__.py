"""The loops that move jobs on when nobody holds them, each run by one replica at a time."""

from coatcheck.upkeep.crew import Upkeep

__all__ = ["Upkeep"]
