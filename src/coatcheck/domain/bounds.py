"""Bounds on what one caller can cost the others, each declared beside the code that enforces it.

``docs/reference/bounds.md`` lists them all: ``make reference`` writes it from the declarations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

BOUNDS: Final[dict[str, Bound]] = {}
"""The declared bounds by name, as far as their modules are loaded."""


Counted = Literal[
    "deployment", "server", "process", "worker", "service", "connection", "request", "claim"
]
"""What a bound is counted over. One of a ``deployment`` is counted in PostgreSQL. One of a
``server`` is divided among the server's processes (``share``)."""


@dataclass(frozen=True)
class Bound:
    """A bound that no metric counts, because whoever reaches it loses nothing."""

    name: str
    of: str
    """What is bounded."""
    over: Counted
    """What it is counted over."""
    response: str
    """What happens to a caller who reaches it."""
    value: str = ""
    settings: Sequence[str] = ()
    """The fields of ``Settings`` that change it; their defaults are shown with its value."""

    def __post_init__(self) -> None:
        if self.name in BOUNDS:
            raise ValueError(f"two bounds are called {self.name}")
        BOUNDS[self.name] = self


class CountedBound(Bound):
    """A bound that is counted by its name when it is reached (``metrics.record_bound_met``)."""


def share(most: int, processes: int, *, least: int = 1) -> int:
    """What one process of a server may have of ``most``, so that all of them have no more together.

    It is never less than ``least``. 0 stands for no limit.
    """
    return max(least, most // processes) if most else 0
