"""The parts that list the bounds on one caller and the fixed limits."""

from __future__ import annotations

from coatcheck.domain import limits
from coatcheck.domain.bounds import BOUNDS, Bound, CountedBound
from coatcheck.settings import SETTINGS
from scripts.reference.parts import code, described_names, load_everything, prose, table

_BINARY = (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))


def _bounds() -> str:
    load_everything()
    return table(
        ["name", "what is bounded", "of each", "bound", "response"],
        (
            [code(name), each.of, each.over, _bound(each), each.response + _counted(each)]
            for name, each in sorted(BOUNDS.items())
        ),
    )


def _bound(bound: Bound) -> str:
    declared = [SETTINGS[name] for name in bound.settings]
    changed_by = [f"{prose(each.variable)}: {each.shown_default}" for each in declared]
    return "; ".join([*changed_by, bound.value] if bound.value else changed_by)


def _counted(bound: Bound) -> str:
    return "" if isinstance(bound, CountedBound) else ". Not counted"


def _limits() -> str:
    return table(
        ["limit", "value", "meaning"],
        (
            [code(name), _value(name, getattr(limits, name)), prose(text)]
            for name, text in described_names(limits).items()
        ),
    )


def _value(name: str, value: object) -> str:
    if not isinstance(value, int):
        return str(value)
    if "_BYTES" in name:
        for unit, size in _BINARY:
            if value >= size and value % size == 0:
                return f"{value // size:,} {unit}"
    return f"{value:,}"


PARTS = {"the bounds": _bounds, "the limits": _limits}
