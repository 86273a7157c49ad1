"""The part that lists the codes with which jobs fail."""

from __future__ import annotations

from coatcheck.domain.failures import FailureCode
from scripts.reference.parts import code, described_names, load_everything, own_docstring, table


def _failures() -> str:
    load_everything()
    kinds = sorted(FailureCode.__subclasses__(), key=lambda kind: kind.__module__)
    return "\n".join(f"## {own_docstring(kind)}\n\n{_codes(kind)}" for kind in kinds)


def _codes(kind: type[FailureCode]) -> str:
    meanings = described_names(kind)
    return table(["code", "meaning"], ([code(each), meanings[each.name]] for each in kind))


PARTS = {"the failures": _failures}
