"""Bounds on what one caller can cost the others, each declared beside the code that enforces it.

``docs/reference/bounds.md`` lists them all: ``make reference`` writes it from the declarations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BOUNDS: Final[dict[str, Bound]] = {}
"""The declared bounds by name, as far as their modules are loaded."""


@dataclass(frozen=True)
class Bound:
    """A bound that no metric counts, because whoever reaches it loses nothing."""

    name: str
    of: str
    """What is bounded."""
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
