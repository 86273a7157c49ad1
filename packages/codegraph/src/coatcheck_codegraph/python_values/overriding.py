"""Overriding methods: ``self.m()`` may run the method of a subclass."""

from __future__ import annotations

from typing import Final

from coatcheck_codegraph.entities import Declared
from coatcheck_codegraph.evaluation import Evaluator
from coatcheck_codegraph.facts import FILE, Call, Ref
from coatcheck_codegraph.names import FileNames

_HEIRS_MAX: Final = 16
"""Classes that inherit from one. If there are more, an override says nothing of a call."""

_SELF: Final = Ref("self", ())


class Overrides:
    """Which classes inherit from which, and what they override."""

    def __init__(self, evaluator: Evaluator, followed: set[str]) -> None:
        """``followed`` are the paths of the files whose calls may have several targets."""
        self._files = evaluator.files
        self._ancestors = evaluator.ancestors.of
        self._heirs: dict[Declared, list[Declared]] = {}
        for path in followed:
            for declared in evaluator.files[path].declared:
                if declared.declaration.kind == "class" and declared.declaration.bases:
                    for ancestor in self._ancestors(declared)[1:]:
                        heirs = self._heirs.setdefault(ancestor, [])
                        if len(heirs) <= _HEIRS_MAX:
                            heirs.append(declared)

    def of(self, names: FileNames, call: Call, callee: Declared) -> list[Declared]:
        """What a call of a method of the same object may run instead of ``callee``."""
        steps = call.callee.steps
        if call.caller == FILE or len(steps) != 2 or callee.declaration.kind != "function":
            return []
        caller = names.declaration(call.caller)
        if caller.locals.get(steps[0].name) != _SELF or caller.parent == FILE:
            return []
        heirs = self._heirs.get(names.declared[caller.parent], ())
        if not 0 < len(heirs) <= _HEIRS_MAX:
            return []
        found: dict[Declared, None] = {}
        for heir in heirs:
            if self._method(heir, caller.name) is names.declared[call.caller]:
                overriding = self._method(heir, steps[1].name)
                if overriding is not None and overriding is not callee:
                    found[overriding] = None
        return list(found)

    def _method(self, of: Declared, name: str) -> Declared | None:
        """The function that a class has by a name."""
        for ancestor in self._ancestors(of):
            members = self._files[ancestor.path].members(ancestor.index).get(name)
            if members:
                last = members[-1]
                return last if last.declaration.kind == "function" else None
        return None
