"""The ancestors of a class, in the order of method resolution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from coatcheck_codegraph.entities import Declared, Entity
from coatcheck_codegraph.facts import Ref
from coatcheck_codegraph.language import Outside

CLASSES_MAX: Final = 200
"""The number of ancestors of one class that count; more distant ones are left out."""


class ClassAncestors:
    """Finds bases and ancestors of classes. ``base`` evaluates the reference to a base."""

    def __init__(
        self,
        parts: Mapping[Declared, tuple[Declared, ...]],
        base: Callable[[Declared, Ref], Entity | None],
    ) -> None:
        self._parts = parts
        self._base = base
        self.forget()

    def forget(self) -> None:
        """Drop the cached results."""
        self._bases: dict[Declared, tuple[Entity | None, ...]] = {}
        self._above: dict[Declared, tuple[Declared, ...]] = {}
        self._known: dict[Declared, tuple[Declared, ...]] = {}
        self._outside: dict[Declared, Outside | None] = {}
        self._own_outsides: dict[Declared, tuple[bool, Outside | None]] = {}
        self._pending: set[Declared] = set()
        """Classes whose bases are being evaluated: until that is done, they seem to have none."""

    def of(self, of: Declared) -> tuple[Declared, ...]:
        """A class and its ancestors, nearest first.

        The order is depth first, left to right; an ancestor that is inherited twice comes after all
        classes that extend it.
        """
        found = self._known.get(of)
        if found is None:
            found = self._known[of] = tuple(self._chain(of) or self._ordered(of))
        return found

    def _chain(self, of: Declared) -> list[Declared] | None:
        """The ancestors of a class none of whose ancestors extends several; None if one does."""
        found = {of: None}
        while (above := self._classes_above(of)) and len(found) < CLASSES_MAX:
            if len(above) > 1:
                return None
            of = above[0]
            if of in found:
                break
            found[of] = None
        return list(found)

    def _ordered(self, of: Declared) -> list[Declared]:
        """The ancestors of any class. Each is visited once, even if several paths lead to it:
        backwards, from the last base to the first, a class after all that it extends."""
        nearest = self._nearest(of)
        order: list[Declared] = []
        seen = {of}
        path = [(of, iter(reversed(self._classes_above(of))))]
        while path:
            declared, above = path[-1]
            base = next((base for base in above if base in nearest and base not in seen), None)
            if base is None:
                order.append(declared)
                path.pop()
            else:
                seen.add(base)
                path.append((base, iter(reversed(self._classes_above(base)))))
        order.reverse()
        return order

    def _nearest(self, of: Declared) -> set[Declared]:
        """The ancestors that count, by the number of steps to them."""
        found = {of}
        level = [of]
        while level:
            further: list[Declared] = []
            for declared in level:
                for base in self._classes_above(declared):
                    if len(found) >= CLASSES_MAX:
                        return found
                    if base not in found:
                        found.add(base)
                        further.append(base)
            level = further
        return found

    def _classes_above(self, of: Declared) -> tuple[Declared, ...]:
        above = self._above.get(of)
        if above is None:
            declared = [base for base in self.bases(of) if isinstance(base, Declared)]
            above = tuple(declared[:CLASSES_MAX])
            if not any(part in self._pending for part in self._parts.get(of, (of,))):
                self._above[of] = above
        return above

    def outside_base(self, of: Declared) -> Outside | None:
        """The external base that has a member which no class of the archive has, if certain."""
        if of in self._outside:
            return self._outside[of]
        found = self._outside_of(of)
        if not self._pending:
            self._outside[of] = found
        return found

    def _outside_of(self, of: Declared) -> Outside | None:
        outside: Outside | None = None
        for ancestor in self.of(of):
            is_certain, own = self._own_outside(ancestor)
            if not is_certain:
                return None
            outside = outside or own
        return outside

    def _own_outside(self, of: Declared) -> tuple[bool, Outside | None]:
        """Whether all direct bases of a class are known, and the first that is external."""
        found = self._own_outsides.get(of)
        if found is None:
            bases = self.bases(of)
            outside = next((base for base in bases if isinstance(base, Outside)), None)
            found = (None not in bases, outside)
            if not self._pending:
                self._own_outsides[of] = found
        return found

    def bases(self, of: Declared) -> tuple[Entity | None, ...]:
        """The direct bases of a class, in order; None for a base that is not known."""
        return tuple(
            base for part in self._parts.get(of, (of,)) for base in self.bases_of_part(part)
        )

    def bases_of_part(self, of: Declared) -> tuple[Entity | None, ...]:
        """The same for one of the declarations of a class."""
        found = self._bases.get(of)
        if found is None:
            self._bases[of] = ()
            self._pending.add(of)
            found = tuple(self._base(of, base) for base in of.declaration.bases)
            self._pending.discard(of)
            self._bases[of] = found
        return found
