"""How much chance a test is given, and which.

With the tests: little, and the same every time. The fuzz lane (``python -m chaos.fuzz``) sets these
variables, and then a test tries more, drawn from the seed.
"""

from __future__ import annotations

import os
import random

TIMES_VARIABLE = "FUZZ_TIMES"
SEED_VARIABLE = "FUZZ_SEED"


def times() -> int:
    """How many times as much is tried as in ``make test``."""
    return int(os.environ.get(TIMES_VARIABLE, "1"))


def seed() -> int | None:
    """What chance is drawn from; None where nothing is left to it."""
    given = os.environ.get(SEED_VARIABLE)
    return int(given) if given else None


def chance(name: str) -> random.Random:
    """A source of chance of one test's own, which no other test disturbs."""
    return random.Random(f"{seed() or 0} {name}")
