"""The names that a file sees: its own, those of neighbouring files, those of wildcard imports."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from coatcheck_codegraph.entities import Declared, Entity, Module, Package
from coatcheck_codegraph.facts import FILE, Declaration, FileFacts
from coatcheck_codegraph.language import Language, Outside
from coatcheck_codegraph.project import Project

# The names of one file, by the scope that declares them.

ImportedName = tuple[int, str]
"""The index of an import of the file, and the name in the imported module."""


class FileNames:
    """The names that a file declares and imports."""

    __slots__ = ("declared", "facts", "imported", "inside", "language", "path", "wildcards")

    def __init__(self, facts: FileFacts, language: Language) -> None:
        self.path = facts.path
        self.facts = facts
        self.language = language
        self.declared = [
            Declared(facts.path, index, declaration)
            for index, declaration in enumerate(facts.declarations)
        ]
        self.inside: dict[int, dict[str, list[Declared]]] = {}
        for declared in self.declared:
            # A method that is written outside of its class is found only through the class.
            if declared.declaration.receiver is None or language.extension_methods:
                place = self.inside.setdefault(declared.declaration.parent, {})
                place.setdefault(declared.declaration.name, []).append(declared)
        self.imported: dict[int, dict[str, list[ImportedName]]] = {}
        self.wildcards: dict[int, list[int]] = {}
        for ordinal, imported in enumerate(facts.imports):
            for binding in imported.bindings:
                if binding.local == "*":
                    self.wildcards.setdefault(imported.scope, []).append(ordinal)
                else:
                    names = self.imported.setdefault(imported.scope, {})
                    names.setdefault(binding.local, []).append((ordinal, binding.remote))

    def members(self, index: int = FILE) -> Mapping[str, list[Declared]]:
        """The declarations directly inside another one, or at the top of the file."""
        return self.inside.get(index, _NOTHING)

    def declaration(self, index: int) -> Declaration:
        return self.facts.declarations[index]


_NOTHING: Mapping[str, list[Declared]] = {}


# Files that see each other without an import, and those of them that declare a name.

_RANKED_FILES_MAX: Final = 500
"""The number of files whose neighbours are cached. In C, each may have thousands."""

_DECLARING_FEW: Final = 20
"""If at most this many files declare a name, they are searched every time, without a cache."""

_ANSWERS_MAX: Final = 10_000
"""The number of cached answers about names that more files declare."""

_NOWHERE: Final[Mapping[str, None]] = {}


class Neighbourhood:
    """The neighbours of each file by the rules of its language, ranked by distance."""

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
        # Many names are looked up in large packages, so not all files are searched each time.
        known = self._members_of_tuple.get(id(paths))
        if known is None:
            if len(self._members_of_tuple) >= _RANKED_FILES_MAX:
                self._members_of_tuple.clear()
            known = self._members_of_tuple[id(paths)] = (paths, frozenset(paths))
        return [path for path in declaring if path in known[1]]

    def nearest_declaring(self, names: FileNames, name: str) -> list[str]:
        """The nearest neighbours of a file that declare a name."""
        declaring = self.declaring(name)
        if not declaring:
            return []
        ranks = self.ranks(names)
        if len(declaring) <= _DECLARING_FEW or len(ranks) <= _DECLARING_FEW:
            return self._nearest_of(declaring, ranks, names.path)
        # Files of one package have the same neighbours, so they share the answer, unless a file
        # declares the name itself.
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
        """The distance of each neighbour of a file."""
        ranks = self._ranks.get(names.path)
        if ranks is None:
            if len(self._ranks) >= _RANKED_FILES_MAX:
                self._ranks.clear()
                self._ranks_of_tuple.clear()
            neighbours = names.language.rules.neighbours(self._project, names.facts)
            # A package's files usually share one tuple; then they share the ranking, too.
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


# Wildcard imports (``from x import *``) that may bind a name.
#
# A file may import all names of thousands of others, which import from others again. So not all of
# them are searched for every name: a file that has only its own declarations is indexed by their
# names, and is searched for no other name.

_NAMED_BY_FOLDER: Final = "__init__."
"""The beginning of the name of a file that stands for its folder: the files beside it are its
submodules."""

_PACKAGE_FILES_FEW: Final = 50
"""Packages with at most this many files are indexed by names, too."""

_NOBODY: Final[Mapping[str, None]] = {}


@dataclass(slots=True)
class _ScopeWildcards:
    """The wildcard imports at one place, by their ordinals.

    ``by_path`` has those of single files and small packages; ``others`` also has those that may
    bind names which the files do not declare. ``outside`` is the last external module.
    """

    by_path: dict[str, list[int]] = field(default_factory=dict)
    others: list[int] = field(default_factory=list)
    outside: Outside | None = None


class WildcardImports:
    """Finds the wildcard imports that may bind a name.

    ``target`` finds the target of an import; ``added_to`` are modules that other files add to.
    """

    def __init__(
        self,
        files: Mapping[str, FileNames],
        target: Callable[[str, int], Entity | None],
        added_to: Container[object],
    ) -> None:
        self._files = files
        self._target = target
        self._added_to = added_to
        self.forget()

    def forget(self) -> None:
        """Drop the cached results."""
        self._known: dict[tuple[str, int, bool], _ScopeWildcards] = {}
        self._giving: dict[str, dict[str, None]] = {}
        self._plain: dict[str, bool] = {}

    def bringing(
        self, names: FileNames, scope: int, name: str, exported: bool, is_final: bool
    ) -> Sequence[int]:
        """The ordinals of the imports that may bind a name at a place, in order: first those of
        files that declare it themselves.

        ``exported``: only imports that re-export their names. ``is_final``: no import is being
        followed at the moment, so that the result can be cached.
        """
        if scope not in names.wildcards:
            return ()
        wildcards = self._at(names, scope, exported, is_final)
        giving = self._giving.get(name, _NOBODY)
        if len(giving) > len(wildcards.by_path):
            paths: Iterable[str] = (path for path in wildcards.by_path if path in giving)
        else:
            paths = giving
        direct = [one for path in paths for one in wildcards.by_path.get(path, ())]
        return [*sorted(direct), *wildcards.others] if direct else wildcards.others

    def outside(self, names: FileNames, exported: bool, is_final: bool) -> Outside | None:
        """The last external module with a wildcard import."""
        if FILE not in names.wildcards:
            return None
        return self._at(names, FILE, exported, is_final).outside

    def _at(self, names: FileNames, scope: int, exported: bool, is_final: bool) -> _ScopeWildcards:
        key = (names.path, scope, exported)
        found = self._known.get(key)
        if found is None:
            found = self._find(names, scope, exported)
            if is_final:
                self._known[key] = found
        return found

    def _find(self, names: FileNames, scope: int, exported: bool) -> _ScopeWildcards:
        found = _ScopeWildcards()
        for ordinal in names.wildcards[scope]:
            if exported and not names.facts.imports[ordinal].exported:
                continue
            target = self._target(names.path, ordinal)
            if isinstance(target, Outside):
                found.outside = target
                continue
            if isinstance(target, Module):
                found.by_path.setdefault(target.path, []).append(ordinal)
                if self._is_plain(target):
                    continue
            elif isinstance(target, Package) and len(target.paths) <= _PACKAGE_FILES_FEW:
                for path in target.paths:
                    found.by_path.setdefault(path, []).append(ordinal)
                    self._is_plain(Module(path))
            if target is not None:
                found.others.append(ordinal)
        return found

    def _is_plain(self, module: Module) -> bool:
        is_plain = self._plain.get(module.path)
        if is_plain is None:
            names = self._files[module.path]
            by_folder = names.language.submodule is not None and posixpath.basename(
                module.path
            ).startswith(_NAMED_BY_FOLDER)
            is_plain = not (
                by_folder
                or FILE in names.wildcards
                or "" in names.facts.exports
                or module in self._added_to
            )
            self._plain[module.path] = is_plain
            own = (names.members(), names.facts.variables, names.facts.exports)
            for given in (*own, names.imported.get(FILE, {})):
                for name in given:
                    self._giving.setdefault(name, {})[module.path] = None
        return is_plain
