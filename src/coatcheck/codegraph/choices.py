"""Which of several declarations a name means, if that is certain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from coatcheck.codegraph.entities import Declared, Entity
from coatcheck.codegraph.names import FileNames
from coatcheck.codegraph.neighbourhood import Neighbourhood

_CANDIDATES_MAX: Final = 100
"""Declarations of one name in one place that are looked at. What more of them in several files
declare means nothing; in one file they are overloads of one thing."""


class Choices:
    """Chooses among candidates.

    ``whole`` has, for each part of a class, the one that stands for all of them; ``definitions``
    the same for what is declared in one place and defined in another.
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
        self.definitions: Mapping[Declared, Declared] = {}

    def one_of(
        self, candidates: list[Declared], as_type: bool, called: bool, asker: str
    ) -> Declared | None:
        """The one that a name means among those that declare it in one place."""
        if len(candidates) == 1:
            return self._whole.get(candidates[0], candidates[0])
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
        return self.definitions.get(declared, declared)

    def agreed(self, found: Sequence[Entity | None]) -> Entity | None:
        """The entity that all of them are; None if they are not."""
        first: Entity | None = None
        for one in found:
            entity = self.identity(one) if isinstance(one, Declared) else one
            if first is None:
                first = entity
            elif entity is not None and entity != first:
                return None
        return first
