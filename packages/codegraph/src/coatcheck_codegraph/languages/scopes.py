"""Block scopes of variables, for languages in which a block can redeclare a name.

``x := open(); if x := x.next(); x.ok() {...}`` has two variables. The facts of a function know
variables by name alone, so the second is written as ``x#2`` wherever it is used. The elements of a
collection ``x`` are a separate variable, ``x[]``.
"""

from __future__ import annotations

from typing import Final

from coatcheck_codegraph.builder import Builder
from coatcheck_codegraph.facts import Ref, Step

OPAQUE: Final = Ref("opaque", ())
"""An unknown value: it only hides outer variables of its name."""

STEPS_MAX: Final = 20
"""The number of names in a reference; the beginning of a longer chain is ignored."""


def element(of: Ref) -> Ref:
    """The elements of the collection ``of``."""
    if not of.steps or of.is_type or of.steps[-1].called:
        return OPAQUE
    return Ref(of.base, (*of.steps[:-1], Step(of.steps[-1].name + "[]")))


class Scopes:
    """The variables of one function and the blocks inside it."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._blocks: list[dict[str, str]] = [{}]
        self._declared: dict[str, int] = {}
        self._free: set[str] = set()
        self._functions: set[str] = set()
        self._places: dict[str, dict[str, Ref]] = {}
        self._assigned: set[str] = set()
        self._called: set[str] = set()

    def open(self) -> None:
        self._blocks.append({})

    def close(self) -> None:
        if len(self._blocks) > 1:
            self._blocks.pop()

    def name(self, name: str) -> str:
        """The name by which the facts know what ``name`` means here."""
        for block in reversed(self._blocks):
            if name in block:
                return block[name]
        self._free.add(name)
        return name

    def free(self, name: str) -> None:
        """``name`` is used as what it means outside: no variable may take its place."""
        self._free.add(name)

    def known(self, name: str) -> bool:
        """Whether ``name`` is a variable here."""
        return any(name in block for block in self._blocks)

    def known_in_block(self, name: str) -> bool:
        """Whether the innermost block itself has declared ``name``."""
        return name in self._blocks[-1]

    def declare(self, name: str, holds: Ref | None, elements: Ref | None = None) -> None:
        """``name`` from here on; ``elements`` is what a collection holds."""
        unique = self._unique(name)
        self._places[unique] = self._variables_here()
        self._builder.variable(unique, holds or OPAQUE)
        if elements is not None:
            self._builder.variable(unique + "[]", elements)

    def add(self, unique: str, holds: Ref) -> None:
        """Something else that belongs to a variable, known by a name that no source has."""
        self._builder.variable(unique, holds)

    def declare_function(self, name: str) -> None:
        """``name`` is a function from here on, that is declared by itself.

        A second one can not be told from the first by name: calls of it stay unresolved.
        """
        if name in self._functions:
            self.declare(name, None)
            return
        self._functions.add(name)
        self._declared.setdefault(name, 1)
        self._places[name] = self._variables_here()
        self._blocks[-1][name] = name

    # Functions in variables: which one, if another is put there later?

    def assign(self, name: str) -> bool:
        """A variable gets another value, of the same type. False if there is none of that name."""
        if not self.known(name):
            return False
        self._assigned.add(self.name(name))
        return True

    def note_call(self, callee: Ref) -> None:
        """Note what is called: if that is a variable, it holds a function."""
        if callee.base == "name" and callee.steps and callee.steps[0].called:
            self._called.add(callee.steps[0].name)

    def settle(self) -> None:
        """When the function was walked: what a variable calls that holds one function after
        another is not known."""
        pending = list(self._called)
        while pending:
            unique = pending.pop()
            place = self._places.get(unique, {})
            if unique in self._assigned:
                place[unique] = OPAQUE
                continue
            held = place.get(unique)
            if held is not None and held.base == "name" and len(held.steps) == 1:
                further = held.steps[0].name
                if not held.is_type and further not in self._called:
                    self._called.add(further)
                    pending.append(further)

    def _variables_here(self) -> dict[str, Ref]:
        function = self._builder.innermost("function")
        return self._builder.facts.variables if function is None else function.locals

    def _unique(self, name: str) -> str:
        times = self._declared.get(name, 1 if name in self._free else 0) + 1
        self._declared[name] = times
        unique = name if times == 1 else f"{name}#{times}"
        self._blocks[-1][name] = unique
        return unique
