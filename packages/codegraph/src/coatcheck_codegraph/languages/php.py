"""PHP: files say their namespace, and are included by path or found by their class's name."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import Final

import msgspec

from coatcheck_codegraph.facts import FileFacts, Import
from coatcheck_codegraph.language import Inside, Language, Outside
from coatcheck_codegraph.languages.php_builtins import CLASSES, FUNCTIONS
from coatcheck_codegraph.languages.php_extraction import RELATIVE, ROOT, extract
from coatcheck_codegraph.namespaces import NamespacesByProject
from coatcheck_codegraph.project import Project

_BUILTINS: Final = frozenset([*CLASSES.split(), *FUNCTIONS.split()])
_namespaces = NamespacesByProject("php")


class PhpRules:
    """A class is found by its namespace; one that is copied, where ``composer.json`` says it is."""

    def target(self, project: Project, file: FileFacts, imported: Import) -> Inside | Outside:
        if imported.kind == "require":
            path = _included(project, file.path, imported.module)
            return Outside(imported.module) if path is None else Inside((path,))
        names = tuple(imported.module.split("\\"))
        autoloaded = _autoloaded(project, file.path, names)
        if autoloaded is not None:
            return Inside((autoloaded,), item=names[-1])
        found = _namespaces(project).find(names, file.path)
        if found is not None and (found.item or imported.kind == "class"):
            return found
        return Outside("\\".join(names[:-1] or names))

    def neighbours(self, project: Project, file: FileFacts) -> Iterable[tuple[str, ...]]:
        # A function that its namespace does not have is that of no namespace.
        return _namespaces(project).beside(file.package, ())

    def root(self, project: Project, file: FileFacts, name: str) -> Inside | Outside | None:
        namespaces = _namespaces(project)
        if name.startswith(ROOT):
            first = name.removeprefix(ROOT)
            return namespaces.find((first,), file.path) or Outside(first)
        relative = (*file.package, name.removeprefix(RELATIVE))
        return namespaces.find(relative, file.path)


def _included(project: Project, path: str, included: str) -> str | None:
    """The file that is included: from the including one's folder, or from any, if only one fits."""
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), included))
    if beside in project:
        return beside
    if included.startswith("."):
        return None
    ending = project.ending(posixpath.normpath(included))
    return ending[0] if len(ending) == 1 else None


def _autoloaded(project: Project, path: str, names: tuple[str, ...]) -> str | None:
    """Where ``composer.json`` says that a class is."""
    manifest = project.nearest_manifest(path, "composer.json")
    if manifest is None or "composer.psr4" not in manifest.properties:
        return None
    folder = posixpath.dirname(manifest.path)
    for prefix, folders in _psr4(manifest.properties["composer.psr4"]):
        of_prefix = tuple(part for part in prefix.split("\\") if part)
        if names[: len(of_prefix)] == of_prefix and len(names) > len(of_prefix):
            rest = "/".join(names[len(of_prefix) :]) + ".php"
            for source in folders:
                found = posixpath.normpath(posixpath.join(folder, source, rest))
                if found in project and _declares(project, found, names):
                    return found
    return None


def _declares(project: Project, path: str, names: tuple[str, ...]) -> bool:
    return path in _namespaces(project).declaring(names[:-1], names[-1])


def _psr4(text: str) -> list[tuple[str, list[str]]]:
    """Folders by the namespace that is in them, the longest first. Whatever else is passed over."""
    try:
        said = msgspec.json.decode(text, type=dict[str, str | list[str]])
    except msgspec.MsgspecError:
        return []
    folders = [(key, [value] if isinstance(value, str) else value) for key, value in said.items()]
    return sorted(folders, key=lambda entry: (-len(entry[0]), entry[0]))


LANGUAGE: Final = Language(
    name="php",
    suffixes=(".php",),
    extract=extract,
    rules=PhpRules(),
    constructors=("__construct",),
    builtins=_BUILTINS,
)
