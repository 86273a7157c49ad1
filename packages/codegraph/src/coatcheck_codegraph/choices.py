"""Which of several declarations a name means, if that is certain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from coatcheck_codegraph.entities import Declared, Entity, Overloads
from coatcheck_codegraph.facts import FILE
from coatcheck_codegraph.names import FileNames
from coatcheck_codegraph.neighbourhood import Neighbourhood
from coatcheck_codegraph.shapes import fits, is_overloadable, levels_of, shape_of

_CANDIDATES_MAX: Final = 100
"""Declarations of one name in one place that are looked at. What more of them in several files
declare means nothing, and so do overloads; in one file others are redefinitions of one thing."""


class Choices:
    """Chooses among candidates.

    ``whole`` has, for each part of a class, the one that stands for all of them.
    """

    def __init__(
        self,
        files: Mapping[str, FileNames],
        whole: Mapping[Declared, Declared],
        neighbourhood: Neighbourhood,
    ) -> None:
        self._files = files
        self._whole = whole
        self._neighbourhood = neighbourhood
        self._definitions: Mapping[Declared, Declared] = {}
        self._parameters: dict[Declared, tuple[int, int]] = {}
        """What definitions take whose promises have the default values."""

    def know(self, definitions: Mapping[Declared, Declared]) -> None:
        """From now on, what is declared in one place and defined in another is one thing."""
        self._definitions = definitions
        for promise, definition in definitions.items():
            promised, defined = promise.declaration.parameters, definition.declaration.parameters
            if promised is not None and defined is not None:
                least, most = self._parameters.get(definition, defined)
                self._parameters[definition] = (min(least, promised[0]), most)

    def one_of(
        self, candidates: list[Declared], as_type: bool, called: bool, asker: str
    ) -> Declared | Overloads | None:
        """The one that a name means among those that declare it in one place, or the overloads
        that it stands for."""
        if len(candidates) == 1:
            return self._whole.get(candidates[0], candidates[0])
        if not as_type and any(map(is_overloadable, candidates[:_CANDIDATES_MAX])):
            if len(candidates) > _CANDIDATES_MAX:
                return Overloads(())
            functions = [one for one in candidates if one.declaration.kind == "function"]
            if called or len(functions) == len(candidates):
                return self._overloads(functions, asker)
        if len(candidates) > _CANDIDATES_MAX:
            if candidates[0].path != candidates[-1].path:
                return None
            last = self._files[candidates[0].path].language.last_wins
            candidates = candidates[-_CANDIDATES_MAX:] if last else candidates[:_CANDIDATES_MAX]
        defined = [one for one in candidates if not one.declaration.forward] or candidates
        if as_type:
            fitting = [one for one in defined if one.declaration.kind != "function"] or defined
        elif called:
            fitting = [one for one in defined if one.declaration.kind == "function"] or defined
        else:
            fitting = defined
        if len({one.path for one in fitting}) > 1:
            fitting = self._nearest(fitting, asker)
            if len({self.identity(one) for one in fitting}) > 1 and (
                len({one.path for one in fitting}) > 1
            ):
                return None
        last = self._files[fitting[0].path].language.last_wins
        chosen = fitting[-1 if last else 0]
        return self._whole.get(chosen, chosen)

    def _overloads(self, functions: list[Declared], asker: str) -> Declared | Overloads:
        if len({one.path for one in functions}) > 1 and not any(map(self._is_member, functions)):
            functions = self._seen(functions, asker)
        distinct = tuple(dict.fromkeys(map(self.identity, functions)))
        return distinct[0] if len(distinct) == 1 else Overloads((distinct,))

    def _is_member(self, function: Declared) -> bool:
        declaration = function.declaration
        if declaration.receiver is not None:
            return True
        around = declaration.parent
        return around != FILE and self._files[function.path].declaration(around).kind == "class"

    def chosen(self, overloads: Overloads, arguments: int, asker: str) -> Declared | None:
        """The overload that a call with so many arguments runs: if that is one function, and of
        the nearest that take so many."""
        levels = [(level, False) for level in overloads.levels]
        levels += [(level, True) for level in overloads.extensions]
        for level, as_method in levels:
            fitting = [one for one in level if self._takes(one, arguments, as_method)]
            if fitting:
                return self._one_function(fitting, asker)
        first = levels[0][0] if levels else ()
        # One alone is meant whatever it is given: it may have default values that are not seen.
        return first[0] if len(first) == 1 else None

    def _takes(self, function: Declared, arguments: int, as_method: bool) -> bool:
        declaration = function.declaration
        if not as_method and declaration.receiver is not None and arguments >= 0:
            # An extension that is called by its own name gets the receiver as an argument.
            arguments -= self._files[function.path].language.extension_methods
        return fits(self._parameters.get(function, declaration.parameters), arguments)

    def _one_function(self, fitting: list[Declared], asker: str) -> Declared | None:
        """The function that all of these are, declared again or for one platform or another."""
        if len(fitting) == 1:
            return fitting[0]
        if len({shape_of(one) for one in fitting}) > 1:
            return None
        defined = [one for one in fitting if not one.declaration.forward]
        fitting = self._nearest(defined or fitting, asker)
        is_one = len(fitting) == 1 or not defined
        return fitting[0] if is_one and len({one.path for one in fitting}) == 1 else None

    def _seen(self, candidates: list[Declared], asker: str) -> list[Declared]:
        """Those that a file sees, if it sees any."""
        if not asker:
            return candidates
        ranks = self._neighbourhood.ranks(self._files[asker])
        seen = [one for one in candidates if one.path == asker or one.path in ranks]
        return seen or candidates

    def _nearest(self, candidates: list[Declared], asker: str) -> list[Declared]:
        if not asker:
            return candidates
        own = [one for one in candidates if one.path == asker]
        if own:
            return own
        ranks = self._neighbourhood.ranks(self._files[asker])
        return [one for one in candidates if one.path in ranks] or candidates

    def identity(self, declared: Declared) -> Declared:
        declared = self._whole.get(declared, declared)
        return self._definitions.get(declared, declared)

    def agreed(self, found: Sequence[Entity | None]) -> Entity | None:
        """The entity that all of them are; None if they are not. Overloads come together."""
        present = [one for one in found if one is not None]
        if len(present) > 1 and all(map(levels_of, present)):
            nearest = [function for one in present for function in levels_of(one)[0]]
            few = len(nearest) <= _CANDIDATES_MAX
            return self._overloads(nearest, "") if few else Overloads(())
        first: Entity | None = None
        for one in found:
            entity = self.identity(one) if isinstance(one, Declared) else one
            if first is None:
                first = entity
            elif entity is not None and entity != first:
                return None
        return first
