"""Go: packages are folders, named by their module."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final
from weakref import WeakKeyDictionary

from coatcheck_codegraph.facts import FileFacts, Import
from coatcheck_codegraph.language import Inside, Language, Outside, words
from coatcheck_codegraph.languages.go_extraction import extract
from coatcheck_codegraph.project import Project

_COPIES_MAX: Final = 20
"""Modules of one name in one archive that are looked into."""


class GoRules:
    """Imports by ``go.mod``, by ``vendor`` folders, and by the folders of a GOPATH."""

    def __init__(self) -> None:
        self._packages: WeakKeyDictionary[Project, _Packages] = WeakKeyDictionary()

    def target(self, project: Project, file: FileFacts, imported: Import) -> Inside | Outside:
        packages = self._of(project)
        for folder in packages.folders(file.path, imported.module):
            paths = packages.importable.get(folder)
            if paths:
                return Inside(paths)
        return Outside(imported.module)

    def neighbours(self, project: Project, file: FileFacts) -> Iterable[tuple[str, ...]]:
        return self._of(project).of(file)

    def root(self, project: Project, file: FileFacts, name: str) -> Inside | None:
        del project, file, name  # every name is declared or imported
        return None

    def _of(self, project: Project) -> _Packages:
        packages = self._packages.get(project)
        if packages is None:
            packages = self._packages[project] = _Packages(project)
        return packages


class _Packages:
    """The Go files of an archive by folder and package."""

    def __init__(self, project: Project) -> None:
        self._files = {
            path: facts for path, facts in project.files.items() if facts.language == "go"
        }
        self._modules: dict[str, list[str]] = {}
        for facts in project.manifests.get("go.mod", ()):
            if module := facts.properties.get("go.module"):
                self._modules.setdefault(module, []).append(posixpath.dirname(facts.path))
        for folders in self._modules.values():
            # Of modules of one name, that in the upper folder.
            folders.sort(key=lambda folder: (len(folder), folder))
            del folders[_COPIES_MAX:]

    def of(self, file: FileFacts) -> tuple[tuple[str, ...], ...]:
        """All files of a file's package, equally near."""
        return self._by_package.get((posixpath.dirname(file.path), file.package), ())

    @cached_property
    def _by_package(self) -> Mapping[tuple[str, tuple[str, ...]], tuple[tuple[str, ...], ...]]:
        found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for path, facts in self._files.items():
            found.setdefault((posixpath.dirname(path), facts.package), []).append(path)
        return {package: (tuple(paths),) for package, paths in found.items()}

    @cached_property
    def importable(self) -> Mapping[str, tuple[str, ...]]:
        """By folder, the files of the package that an import of it gives: none of its tests."""
        found: dict[str, list[str]] = {}
        for path in self._files:
            if not path.endswith("_test.go"):
                found.setdefault(posixpath.dirname(path), []).append(path)
        return {folder: self._without_others(paths) for folder, paths in found.items()}

    def _without_others(self, paths: list[str]) -> tuple[str, ...]:
        """Without ``package main`` and the like of files that the build leaves out."""
        packages = [self._files[path].package for path in paths]
        libraries = [package for package in packages if package not in ((), ("main",))] or packages
        # The most files have it; of equals, the first by name.
        package = min(set(libraries), key=lambda one: (-libraries.count(one), one))
        return tuple(path for path in paths if self._files[path].package == package)

    @cached_property
    def _by_last_name(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {}
        for folder in sorted(self.importable):
            found.setdefault(posixpath.basename(folder), []).append(folder)
        return {name: tuple(folders) for name, folders in found.items()}

    def folders(self, importer: str, path: str) -> Iterable[str]:
        """The folders where the package ``path`` could be, likeliest first."""
        if path.startswith(("./", "../")):
            yield posixpath.normpath(posixpath.join(posixpath.dirname(importer), path)).lstrip(".")
            return
        module = path
        while module:
            for folder in self._modules.get(module, ()):
                yield posixpath.join(folder, path[len(module) + 1 :]).rstrip("/")
            module = module.rpartition("/")[0]
        for folder in self._by_last_name.get(posixpath.basename(path), ()):
            root = folder[: -len(path)].rstrip("/") if folder.endswith("/" + path) else None
            if root is not None and posixpath.basename(root) in ("vendor", "src"):
                yield folder


_BUILTINS: Final = frozenset(
    words(
        """
        append cap clear close complex copy delete imag len make max min new panic print println
        real recover any bool byte comparable complex64 complex128 error float32 float64 int int8
        int16 int32 int64 rune string uint uint8 uint16 uint32 uint64 uintptr
        """
    )
)

LANGUAGE: Final = Language(
    name="go",
    suffixes=(".go",),
    extract=extract,
    rules=GoRules(),
    builtins=_BUILTINS,
)
