"""Resolves the includes of C and C++: files find each other only only by ``#include``.

A file sees the files that it includes, and those that they include in turn. The compiler's search
path is not known here. So a header is looked for beside the file that includes it, and then at any
path that ends as the include says."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final
from weakref import WeakKeyDictionary

from coatcheck_codegraph.facts import FILE, FileFacts, Import
from coatcheck_codegraph.language import Inside, Outside
from coatcheck_codegraph.languages.c_builtins import STANDARD_HEADERS
from coatcheck_codegraph.languages.c_extraction import ANGLED, USED_NAMESPACES
from coatcheck_codegraph.languages.c_syntax import TOP
from coatcheck_codegraph.namespaces import nearest
from coatcheck_codegraph.project import Project

_LANGUAGES: Final = ("c", "cpp")

_HEADERS_MAX: Final = 1500
"""The number of files that a file sees; includes that are further away are left out."""


class IncludeRules:
    """The rules of C, and of C++ besides its namespaces, which the resolver knows."""

    def __init__(self) -> None:
        self._seen: WeakKeyDictionary[Project, _Seen] = WeakKeyDictionary()

    def target(self, project: Project, file: FileFacts, imported: Import) -> Inside | Outside:
        found = included(project, file.path, imported)
        return Outside(imported.module) if found is None else Inside((found,))

    def neighbours(self, project: Project, file: FileFacts) -> list[str]:
        """All included files, directly or not, nearest first."""
        headers = self._seen_in(project).headers
        found = {file.path: None}
        pending = [file.path]
        while pending and len(found) <= _HEADERS_MAX:
            further: list[str] = []
            for path in pending:
                for header in headers.get(path, ()):
                    if header not in found:
                        found[header] = None
                        further.append(header)
            pending = further
        return list(found)[1 : _HEADERS_MAX + 1]

    def root(self, project: Project, file: FileFacts, name: str) -> Inside | Outside | None:
        """A name that the file can do without including it.

        That is one from a namespace that it uses as a whole, and a class that is only announced
        (``class Parser;``) or left to those who include a header, if there is but one of its name.
        What is not declared in all of the archive is declared outside of it: C knows no other
        names. That is certain only of a file that includes something from outside.
        """
        if name == TOP:
            return Inside((file.path, *self.neighbours(project, file)))
        seen = self._seen_in(project)
        for namespace in file.properties.get(USED_NAMESPACES, "").split("\n"):
            paths = seen.in_namespaces.get(f"{namespace}.{name}")
            if namespace and paths:
                return Inside(tuple(paths), item=f"{namespace}.{name}")
        classes = seen.classes.get(name, [])
        if len({path for path, _ in classes}) == 1:
            path, qualified = classes[0]
            return Inside((path,), item=qualified)
        if name not in seen.declared and file.path in seen.reaching_outside:
            return Outside(name)
        return None

    def _seen_in(self, project: Project) -> _Seen:
        seen = self._seen.get(project)
        if seen is None:
            seen = self._seen[project] = _Seen(project)
        return seen


class _Seen:
    """The includes and namespaces of a project's C and C++ files."""

    def __init__(self, project: Project) -> None:
        self.headers: dict[str, tuple[str, ...]] = {}
        self.declared: set[str] = set()
        self.classes: dict[str, list[tuple[str, str]]] = {}
        self.in_namespaces: dict[str, dict[str, None]] = {}
        to_outside: list[str] = []
        for path, facts in project.files.items():
            if facts.language in _LANGUAGES:
                found = [included(project, path, imported) for imported in facts.imports]
                self.headers[path] = tuple(header for header in found if header is not None)
                if None in found:
                    to_outside.append(path)
                self._see_declarations(facts)
        self.reaching_outside = _reaching(to_outside, self.headers)

    def _see_declarations(self, facts: FileFacts) -> None:
        self.declared.update(facts.variables)
        for name, held in facts.variables.items():
            if len(held.steps) > 1 and not held.is_type and not held.steps[-1].called:
                self.classes.setdefault(name, []).append((facts.path, name))  # using std::string
        for declaration in facts.declarations:
            self.declared.add(declaration.name)
            parent = declaration.parent
            around = "" if parent == FILE else facts.declarations[parent].kind
            place = (facts.path, declaration.qualified)
            if not around and declaration.kind == "namespace":
                # All parts of a namespace are one: any of them leads to it.
                self.classes[declaration.name] = [place]
            elif around in ("", "namespace") and declaration.kind in ("class", "type"):
                self.classes.setdefault(declaration.name, []).append(place)
            if around == "namespace":
                self.in_namespaces.setdefault(declaration.qualified, {})[facts.path] = None


def _reaching(places: Iterable[str], headers: Mapping[str, tuple[str, ...]]) -> set[str]:
    """The files that include one of ``places``, directly or not, and those themselves."""
    includers: dict[str, list[str]] = {}
    for path, found in headers.items():
        for header in found:
            includers.setdefault(header, []).append(path)
    reaching = set(places)
    pending = list(reaching)
    while pending:
        for path in includers.get(pending.pop(), ()):
            if path not in reaching:
                reaching.add(path)
                pending.append(path)
    return reaching


def included(project: Project, path: str, imported: Import) -> str | None:
    """The file of the archive that an ``#include`` in ``path`` means, if it is certain."""
    folder = posixpath.dirname(path)
    beside = posixpath.normpath(posixpath.join(folder, imported.module))
    if imported.kind == ANGLED:
        if imported.module in STANDARD_HEADERS:
            return None
    elif beside in project:
        return beside
    wanted = "/".join(part for part in imported.module.split("/") if part not in ("", ".", ".."))
    found = _ending(project, wanted)
    near = found if len(found) == 1 else nearest(found, path)
    return near[0] if len(near) == 1 and near[0] != path else None


@lru_cache(maxsize=64)
def _ending(project: Project, wanted: str) -> tuple[str, ...]:
    return tuple(
        path for path in project.ending(wanted) if project.files[path].language in _LANGUAGES
    )


RULES: Final = IncludeRules()
"""The same for both languages: their files include each other."""
