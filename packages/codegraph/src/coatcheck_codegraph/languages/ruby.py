"""Ruby: files find each other by ``require``, constants by their names alone."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from weakref import WeakKeyDictionary

from coatcheck_codegraph.facts import FileFacts, Import
from coatcheck_codegraph.language import Inside, Language, Outside
from coatcheck_codegraph.languages.ruby_extraction import CONSTANTS, KERNEL, RELATIVE, TOP, extract
from coatcheck_codegraph.namespaces import nearest
from coatcheck_codegraph.project import Project

_LOAD_PATHS: Final = ("lib", "test", "spec", "ext", "app")
"""Folders that ``require`` commonly looks in, the likeliest first."""


class RubyRules:
    """All files are each other's neighbours: which of them are loaded, only running them tells."""

    def __init__(self) -> None:
        self._constants: WeakKeyDictionary[Project, frozenset[str]] = WeakKeyDictionary()
        self._neighbours: WeakKeyDictionary[Project, tuple[tuple[str, ...], ...]] = (
            WeakKeyDictionary()
        )

    def target(self, project: Project, file: FileFacts, imported: Import) -> Inside | Outside:
        wanted = imported.module if imported.module.endswith(".rb") else f"{imported.module}.rb"
        if imported.kind == RELATIVE:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), wanted))
            return Inside((path,)) if path in project else Inside()
        by_folder, at_top = _loadable(project, wanted)
        for folder in _LOAD_PATHS:
            near = nearest(by_folder.get(folder, ()), file.path)
            if len(near) == 1:
                return Inside(near)
        if len(at_top) == 1:
            return Inside(at_top)
        return Outside(imported.module.split("/")[0])

    def neighbours(self, project: Project, file: FileFacts) -> tuple[tuple[str, ...], ...]:
        del file
        found = self._neighbours.get(project)
        if found is None:
            paths = [path for path, facts in project.files.items() if facts.language == "ruby"]
            found = self._neighbours[project] = (tuple(paths),)
        return found

    def root(self, project: Project, file: FileFacts, name: str) -> Inside | Outside | None:
        """The top; or a constant that nothing in the archive declares, so that others must."""
        if name == TOP:
            return Inside(self.neighbours(project, file)[0])
        if name[:1].isupper() and name not in self._declared(project):
            return Outside(name)
        return None

    def _declared(self, project: Project) -> frozenset[str]:
        found = self._constants.get(project)
        if found is None:
            names: set[str] = set()
            for facts in project.files.values():
                if facts.language == "ruby":
                    names.update(facts.variables)
                    for declaration in facts.declarations:
                        names.add(declaration.name)
                        names.update(declaration.fields)
            found = self._constants[project] = frozenset(names)
        return found


@lru_cache(maxsize=64)
def _loadable(
    project: Project, wanted: str
) -> tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]]:
    """The files that ``require`` may mean, by the folder that it looks in; and those at the top."""
    found = project.ending(posixpath.normpath(wanted).lstrip("./"))
    by_folder: dict[str, list[str]] = {}
    for path in found:
        by_folder.setdefault(_folder_of(path, wanted), []).append(path)
    at_top = tuple(path for path in found if path.count("/") - wanted.count("/") <= 0)
    return {folder: tuple(paths) for folder, paths in by_folder.items()}, at_top


def _folder_of(path: str, wanted: str) -> str:
    """The folder that ``wanted`` is in: ``lib`` for ``gem-1.0/lib/a/b.rb`` and ``a/b.rb``."""
    return posixpath.basename(path[: -len(wanted)].rstrip("/"))


LANGUAGE: Final = Language(
    name="ruby",
    suffixes=(".rb", ".rake", ".gemspec"),
    extract=extract,
    rules=RubyRules(),
    implicit_self=True,
    constructors=("initialize",),
    builtins=KERNEL | CONSTANTS,
    calls_variables=False,
    last_wins=True,
)
