"""The planted bugs: a patch each, with a header for the broken invariant and the lane.

    invariant: C
    bug: a completion is accepted although another worker holds the job
    lane: test tests/db/test_fencing.py::test_a_stale_holder_changes_nothing
    also: chaos --minutes 2 --seed 1 --only pauses

    --- a/src/coatcheck/...

``lane`` is the cheapest one that must fail: ``test`` with arguments of pytest, or ``chaos`` with
arguments of ``python -m chaos``. ``also`` is an optional second lane.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

PATCHES: Final = Path(__file__).with_name("patches")
REFUSALS: Final = "refusals"
"""Instead of an invariant's letter: an input is accepted that must be refused."""
INVARIANTS: Final = (*"ABCDEFGHIJKL", REFUSALS)

LaneName = Literal["test", "chaos"]


class BadHeader(ValueError):
    """The header of a patch is invalid."""


@dataclass(frozen=True)
class Lane:
    """The run that must fail: tests by their names, or a chaos run by its arguments."""

    name: LaneName
    arguments: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> Lane:
        name, *arguments = shlex.split(text)
        for known in get_args(LaneName):
            if name == known:
                return cls(known, tuple(arguments))
        raise BadHeader(f"a lane is one of {', '.join(get_args(LaneName))}, and not {name!r}")

    def __str__(self) -> str:
        return shlex.join([self.name, *self.arguments])


@dataclass(frozen=True)
class Bug:
    """One planted bug."""

    name: str
    patch: Path
    invariant: str
    text: str
    lanes: tuple[Lane, ...]

    def lane(self, wanted: LaneName | None) -> Lane | None:
        """The lane of that name; the cheapest one if none is named."""
        if wanted is None:
            return self.lanes[0]
        return next((lane for lane in self.lanes if lane.name == wanted), None)

    @classmethod
    def read(cls, patch: Path) -> Bug:
        fields: dict[str, str] = {}
        for line in patch.read_text().splitlines():
            name, colon, value = line.partition(": ")
            if not colon:
                break
            fields[name] = value.strip()
        if missing := {"invariant", "bug", "lane"} - fields.keys():
            raise BadHeader(f"{patch.name} does not say {', '.join(sorted(missing))}")
        if unknown := fields.keys() - {"invariant", "bug", "lane", "also"}:
            raise BadHeader(f"{patch.name} says {', '.join(sorted(unknown))}, which means nothing")
        if fields["invariant"] not in INVARIANTS:
            raise BadHeader(f"{patch.name} breaks {fields['invariant']}, which is no invariant")
        lanes = tuple(Lane.read(fields[name]) for name in ("lane", "also") if name in fields)
        return cls(patch.stem, patch, fields["invariant"], fields["bug"], lanes)


def planted(only: Sequence[str] = ()) -> list[Bug]:
    """All planted bugs in their order, or those whose name contains one of these words."""
    bugs = [Bug.read(patch) for patch in sorted(PATCHES.glob("*.patch"))]
    return [bug for bug in bugs if not only or any(word in bug.name for word in only)]
