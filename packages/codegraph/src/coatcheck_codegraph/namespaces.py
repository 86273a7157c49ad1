"""The declarations of a namespace, for languages whose files declare their namespace."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Final
from weakref import WeakKeyDictionary

from coatcheck_codegraph.language import Inside
from coatcheck_codegraph.project import Project

Namespace = tuple[str, ...]

_PATHS_FEW: Final = 20
"""Up to this number, paths are compared one by one."""


class Namespaces:
    """The namespaces that files of one language declare."""

    def __init__(self, project: Project, language: str) -> None:
        files: dict[Namespace, list[str]] = {}
        places: dict[tuple[Namespace, str], list[str]] = {}
        self._in_parts: set[tuple[Namespace, str]] = set()
        for path, facts in project.files.items():
            if facts.language != language:
                continue
            files.setdefault(facts.package, []).append(path)
            for name in {found.name for _, found in project.top_level(path)}:
                places.setdefault((facts.package, name), []).append(path)
            for _, found in project.top_level(path):
                if found.partial:
                    self._in_parts.add((facts.package, found.name))
        self.files: Mapping[Namespace, tuple[str, ...]] = {
            namespace: tuple(paths) for namespace, paths in files.items()
        }
        self._places = places
        self._beside: dict[tuple[Namespace, ...], tuple[tuple[str, ...], ...]] = {}

    @cached_property
    def known(self) -> frozenset[Namespace]:
        """The namespaces that have files, and all namespaces around them."""
        return frozenset(outer for namespace in self.files for outer in prefixes(namespace))

    def beside(self, *namespaces: Namespace) -> tuple[tuple[str, ...], ...]:
        """The files of these namespaces, in order; always the same object."""
        found = self._beside.get(namespaces)
        if found is None:
            found = tuple(
                self.files[namespace]
                for namespace in dict.fromkeys(namespaces)
                if namespace in self.files
            )
            self._beside[namespaces] = found
        return found

    def declaring(self, namespace: Namespace, name: str) -> tuple[str, ...]:
        """The files that declare ``name`` in a namespace."""
        return tuple(self._places.get((namespace, name), ()))

    def find(self, names: Namespace, near: str) -> Inside | None:
        """The meaning of a qualified name: a declaration, or a namespace.

        If several files declare it, the one that shares most of its path with ``near`` counts:
        copies of a package in one archive each use their own.
        """
        for cut in range(len(names) - 1, -1, -1):
            paths = self.declaring(names[:cut], names[cut])
            if paths and (names[:cut], names[cut]) not in self._in_parts:
                paths = nearest(paths, near)
            if paths:
                return Inside(paths, item=".".join(names[cut:]))
        return Inside(package=names) if names in self.known else None


def prefixes(namespace: Namespace) -> Iterator[Namespace]:
    """The namespace itself and those around it, innermost first, without the global one."""
    for length in range(len(namespace), 0, -1):
        yield namespace[:length]


def nearest(paths: Iterable[str], near: str) -> tuple[str, ...]:
    """Those of ``paths`` that share the most folders with the path ``near``."""
    if isinstance(paths, tuple) and len(paths) > _PATHS_FEW:
        below = _by_folder_above(paths)
        folder = posixpath.dirname(near)
        while folder and folder not in below:
            folder = posixpath.dirname(folder)
        at_top = () if posixpath.dirname(near) else tuple(one for one in paths if "/" not in one)
        return at_top or below.get(folder, paths)
    folders = posixpath.dirname(near).split("/")

    def shared(path: str) -> int:
        count = 0
        for one, other in zip(posixpath.dirname(path).split("/"), folders, strict=False):
            if one != other:
                break
            count += 1
        return count

    scored = [(shared(path), path) for path in paths]
    best = max((score for score, _ in scored), default=0)
    return tuple(path for score, path in scored if score == best)


@lru_cache(maxsize=16)
def _by_folder_above(paths: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    """Paths by every folder that contains them, directly or not."""
    found: dict[str, list[str]] = {}
    for path in paths:
        folder = posixpath.dirname(path)
        while folder:
            found.setdefault(folder, []).append(path)
            folder = posixpath.dirname(folder)
    return {folder: tuple(below) for folder, below in found.items()}


class NamespacesByProject:
    """The namespaces of a language, computed once for each project."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._known: WeakKeyDictionary[Project, Namespaces] = WeakKeyDictionary()

    def __call__(self, project: Project) -> Namespaces:
        found = self._known.get(project)
        if found is None:
            found = self._known[project] = Namespaces(project, self._language)
        return found
