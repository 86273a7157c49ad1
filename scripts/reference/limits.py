"""The part that lists the fixed limits."""

from __future__ import annotations

from coatcheck.domain import limits
from scripts.reference.parts import code, described_names, prose, table

_BINARY = (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))


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


PARTS = {"the limits": _limits}
