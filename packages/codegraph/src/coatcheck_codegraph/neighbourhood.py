"""Which files see each other without an import, and which of them declare a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from coatcheck_codegraph.names import FileNames
from coatcheck_codegraph.project import Project

_RANKED_FILES_MAX: Final = 500
"""Files whose neighbours are remembered at a time. In C, each may have thousands of its own."""

_DECLARING_FEW: Final = 20
"""Up to so many files that declare a name are looked through whenever it is asked for."""

_ANSWERS_MAX: Final = 10_000
"""Answers about names that more files declare, remembered at a time."""

_NOWHERE: Final[Mapping[str, None]] = {}


class Neighbourhood:
    """The neighbours of each file, as the rules of its language have them, by how near they are."""

    def __init__(self, project: Project, files: Mapping[str, FileNames]) -> None:
        self._project = project
        self._files = files
        self._declaring: dict[str, dict[str, None]] = {}
        for names in files.values():
            for name in (*names.members(), *names.facts.variables):
                self._declaring.setdefault(name, {})[names.path] = None
        self._ranks: dict[str, dict[str, int]] = {}
        self._ranks_of_tuple: dict[int, tuple[object, dict[str, int]]] = {}
        self._within: dict[tuple[int, str], tuple[object, list[str]]] = {}
        self._nearest: dict[tuple[int, str, str], tuple[object, list[str]]] = {}
        self._members_of_tuple: dict[int, tuple[tuple[str, ...], frozenset[str]]] = {}

    def declaring(self, name: str) -> Mapping[str, None]:
        """The files that declare a name at their top, in order."""
        return self._declaring.get(name, _NOWHERE)

    def declaring_within(self, name: str, paths: tuple[str, ...]) -> list[str]:
        """Those of some files that declare a name at their top."""
        declaring = self.declaring(name)
        if not declaring:
            return []
        if len(declaring) <= _DECLARING_FEW:
            return self._declaring_within(declaring, paths)
        key = (id(paths), name)
        if key not in self._within:
            if len(self._within) >= _ANSWERS_MAX:
                self._within.clear()
            self._within[key] = (paths, self._declaring_within(declaring, paths))
        return self._within[key][1]

    def _declaring_within(self, declaring: Mapping[str, None], paths: tuple[str, ...]) -> list[str]:
        if len(paths) <= len(declaring):
            return [path for path in paths if path in declaring]
        # Large packages are asked for many names: not all of their files each time.
        known = self._members_of_tuple.get(id(paths))
        if known is None:
            if len(self._members_of_tuple) >= _RANKED_FILES_MAX:
                self._members_of_tuple.clear()
            known = self._members_of_tuple[id(paths)] = (paths, frozenset(paths))
        return [path for path in declaring if path in known[1]]

    def nearest_declaring(self, names: FileNames, name: str) -> list[str]:
        """The neighbours of a file that declare a name, of these the nearest."""
        declaring = self.declaring(name)
        if not declaring:
            return []
        ranks = self.ranks(names)
        if len(declaring) <= _DECLARING_FEW or len(ranks) <= _DECLARING_FEW:
            return self._nearest_of(declaring, ranks, names.path)
        # Files of one package have the same neighbours: who sees none of its own sees the same.
        own = names.path if names.path in declaring else ""
        key = (id(ranks), name, own)
        if key not in self._nearest:
            if len(self._nearest) >= _ANSWERS_MAX:
                self._nearest.clear()
            self._nearest[key] = (ranks, self._nearest_of(declaring, ranks, own))
        return self._nearest[key][1]

    def _nearest_of(
        self, declaring: Mapping[str, None], ranks: Mapping[str, int], own: str
    ) -> list[str]:
        seen: Iterable[str] = declaring if len(declaring) <= len(ranks) else ranks
        ranked = [
            (ranks[path], path)
            for path in seen
            if path in ranks and path in declaring and path != own
        ]
        nearest = min(ranked)[0] if ranked else 0
        return [path for rank, path in ranked if rank == nearest]

    def ranks(self, names: FileNames) -> Mapping[str, int]:
        """How near each neighbour of a file is: less is nearer."""
        ranks = self._ranks.get(names.path)
        if ranks is None:
            if len(self._ranks) >= _RANKED_FILES_MAX:
                self._ranks.clear()
                self._ranks_of_tuple.clear()
            neighbours = names.language.rules.neighbours(self._project, names.facts)
            # A package's files usually share one tuple: then they share this, too.
            shared = self._ranks_of_tuple.get(id(neighbours))
            if shared is None:
                ranks = {}
                for rank, near in enumerate(neighbours):
                    for path in (near,) if isinstance(near, str) else near:
                        if path in self._files:
                            ranks.setdefault(path, rank)
                if isinstance(neighbours, tuple):
                    self._ranks_of_tuple[id(neighbours)] = (neighbours, ranks)
            else:
                ranks = shared[1]
            self._ranks[names.path] = ranks
        return ranks
