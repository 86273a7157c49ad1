"""How Rust finds modules: a tree of files for each crate, from its root down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from weakref import WeakKeyDictionary

from coatcheck_codegraph.facts import FileFacts, Import
from coatcheck_codegraph.language import Inside, Outside
from coatcheck_codegraph.languages.rust_builtins import BUILTINS
from coatcheck_codegraph.languages.rust_crates import Crates
from coatcheck_codegraph.languages.rust_types import HERE
from coatcheck_codegraph.project import Project

_STARS_MAX: Final = 100
"""Imports of everything in one file that are looked into for the beginning of a path."""


class RustRules:
    """Paths of ``use`` and ``mod``, in this crate, its siblings in the archive, or outside."""

    def __init__(self) -> None:
        self._crates: WeakKeyDictionary[Project, Crates] = WeakKeyDictionary()
        self._stars: WeakKeyDictionary[Project, dict[str, Outside | None]] = WeakKeyDictionary()

    def target(self, project: Project, file: FileFacts, imported: Import) -> Inside | Outside:
        crates = self._of(project)
        names = _names(imported)
        if imported.kind.startswith("mod"):
            found = crates.child(file.path, names)
            return Inside((found,)) if found is not None else Inside()
        if imported.kind == "crate":
            root = crates.library(names[0], file.path)
            return Inside((root,)) if root is not None else Outside(names[0])
        begin, rest = self._begin(crates, file, imported, names)
        if begin is None:
            return Outside(names[0])
        return _descend(crates, begin, rest)

    def neighbours(self, project: Project, file: FileFacts) -> Iterable[str]:
        del project, file  # a file sees nothing of another one that it does not name
        return ()

    def root(self, project: Project, file: FileFacts, name: str) -> Inside | Outside | None:
        crates = self._of(project)
        if name.endswith("!"):
            found = crates.macro(file.path, name)
            return Inside((found,), item=name) if found is not None else None
        path = _anchor(crates, file.path, name)
        if path is not None:
            return Inside((path,))
        if not name[:1].isupper() or name in BUILTINS:
            return None
        return self._from_outside(project, file)

    def _from_outside(self, project: Project, file: FileFacts) -> Outside | None:
        """Where a type comes from that no file of the archive is known to have: from the one crate
        of which the file imports everything. Unless a macro may have made it."""
        if file.path not in self._stars.setdefault(project, {}):
            found = {
                target
                for imported in file.imports
                if any(binding.local == "*" for binding in imported.bindings)
                and isinstance(target := self.target(project, file, imported), Outside)
            }
            certain = len(found) == 1 and not self._of(project).has_types_by_macro(file.path)
            self._stars[project][file.path] = found.pop() if certain else None
        return self._stars[project][file.path]

    def _begin(
        self, crates: Crates, file: FileFacts, imported: Import, names: list[str]
    ) -> tuple[str | None, list[str]]:
        """The file that a path begins in, and what is left of the path there."""
        first, rest = names[0], names[1:]
        anchor = _anchor(crates, file.path, first)
        if anchor is not None:
            return anchor, rest
        if first in (HERE, "crate") or first.startswith("super"):
            return None, rest
        if crates.declares(file.path, first):
            return file.path, names
        library = crates.library(first, file.path)
        if library is not None:
            return library, rest
        importing = crates.importing(file.path)

        def others(local: str) -> Iterator[Import]:
            for other in importing.get(local, ()):
                if other.kind != "named" and other.module not in (first, imported.module):
                    yield other

        if any(True for _ in others(first)):
            return file.path, names
        for other in islice(others("*"), _STARS_MAX):
            brings = self._brought(crates, file, other, first)
            if brings is not None:
                return brings, names
        root = crates.root_of(file.path)
        if root is not None and root != file.path and crates.declares(root, first):
            return root, names  # as paths were in the first edition of the language
        return None, rest

    def _brought(self, crates: Crates, file: FileFacts, star: Import, name: str) -> str | None:
        """The file from which an import of everything brings ``name``, a module."""
        names = _names(star)
        anchor = _anchor(crates, file.path, names[0])
        where = _descend(crates, anchor, names[1:]) if anchor is not None else Inside()
        if where.item or not where.paths:
            return None
        path = where.paths[0]
        return path if crates.declares(path, name) or crates.imports(path, name) else None

    def _of(self, project: Project) -> Crates:
        crates = self._crates.get(project)
        if crates is None:
            crates = self._crates[project] = Crates(project)
        return crates


def _names(imported: Import) -> list[str]:
    """The path of an import; what begins it as one word, however many ``super`` that takes."""
    names = imported.module.split("::")
    if names[0] == "self":
        return [HERE, *names[1:]]
    up = 0
    while up < len(names) and names[up] == "super":
        up += 1
    return ["::".join(names[:up]), *names[up:]] if up else names


def _anchor(crates: Crates, path: str, word: str) -> str | None:
    """The file that a word at the beginning of a path stands for."""
    if word == HERE:
        return path
    if word == "crate":
        return crates.root_of(path)
    if word.split("::", maxsplit=1)[0] == "super":
        found: str | None = path
        for _ in word.split("::"):
            found = crates.parent_of(found) if found is not None else None
        return found
    return None


def _descend(crates: Crates, path: str, names: list[str]) -> Inside:
    """As far down as modules are files; the rest is what is in the last of them."""
    at = 0
    while at < len(names):
        below = crates.child(path, names[at : at + 1])
        if below is None:
            break
        path = below
        at += 1
    return Inside((path,), item=".".join(names[at:]))
