"""Python: resolves modules, as far as an archive of its source allows.

Nothing in the archive says which folders are on the path. The folder above a file's topmost package
counts as one; so do the folders above other packages, unless the name belongs to the standard
library."""

from __future__ import annotations

import builtins
import posixpath
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from coatcheck_codegraph.facts import IMPLIED, FileFacts, Import
from coatcheck_codegraph.language import Inside, Language, Outside
from coatcheck_codegraph.languages.python_extraction import extract
from coatcheck_codegraph.project import Project

_SOURCE_FOLDERS: Final = ("", "src", "lib", "python")
_SUFFIXES: Final = (".py", ".pyi")


class PythonRules:
    """Modules are files, packages are folders."""

    def target(self, project: Project, file: FileFacts, imported: Import) -> Inside | Outside:
        module = imported.module
        if module.startswith("."):
            return _relative(project, file.path, module)
        names = tuple(module.split("."))
        places = [posixpath.join(root, *names) for root in _roots(project, file.path, names[0])]
        for place in places:
            found = _module(project, place)
            if found is not None:
                return found
        # A folder without a file of its own is a package only where no other is: it has to be
        # imported for something that is in it.
        for place in places:
            if place in _folders(project) and (
                imported.kind == IMPLIED
                or any(
                    find(project, posixpath.join(place, binding.remote)) is not None
                    for binding in imported.bindings
                    if binding.remote
                )
            ):
                return Inside(package=(place,))
        return Outside(module)

    def neighbours(self, project: Project, file: FileFacts) -> Iterable[str]:
        del project, file
        return ()

    def root(self, project: Project, file: FileFacts, name: str) -> Inside | None:
        del project, file, name
        return None


def submodule(project: Project, of: Inside, name: str) -> Inside | None:
    """The module of that name in a package's folder."""
    if of.package:
        return find(project, posixpath.join(of.package[0], name))
    folder, file = posixpath.split(of.paths[0])
    return find(project, posixpath.join(folder, name)) if _is_init(file) else None


def find(project: Project, place: str) -> Inside | None:
    """The module at ``folder/name``: a package, a file, or a folder with modules below it."""
    found = _module(project, place)
    if found is None and place in _folders(project):
        return Inside(package=(place,))
    return found


def _module(project: Project, place: str) -> Inside | None:
    for suffix in _SUFFIXES:
        path = f"{place}/__init__{suffix}"
        if path in project:
            return Inside((path,))
    for suffix in _SUFFIXES:
        if place + suffix in project:
            return Inside((place + suffix,))
    return None


def _relative(project: Project, path: str, module: str) -> Inside | Outside:
    below = module.lstrip(".")
    folder = posixpath.dirname(path)
    names = [name for name in below.split(".") if name]
    for _ in range(len(module) - len(below) - 1):
        if not folder:
            return Outside(module)
        folder = posixpath.dirname(folder)
    place = posixpath.join(folder, *names)
    found = find(project, place) if place else None
    if found is not None:
        return found
    root = _root(project, path)
    dotted = posixpath.relpath(place or ".", root or ".").replace("/", ".")
    return Outside(dotted)


def _roots(project: Project, path: str, name: str) -> Iterable[str]:
    """Folders that a module ``name`` may be imported from, the likeliest first."""
    own = _root(project, path)
    yield own
    if name in sys.stdlib_module_names:
        return
    folder = own
    while folder:
        folder = posixpath.dirname(folder)
        for source in _SOURCE_FOLDERS:
            yield posixpath.join(folder, source).rstrip("/")
    others = _package_roots(project).get(name, ())
    if len(others) == 1:
        yield others[0]


def _root(project: Project, path: str) -> str:
    """The folder above the topmost package that a file is in."""
    folder = posixpath.dirname(path)
    while folder and _is_package(project, folder):
        folder = posixpath.dirname(folder)
    return folder


def _is_package(project: Project, folder: str) -> bool:
    return any(f"{folder}/__init__{suffix}" in project for suffix in _SUFFIXES)


def _is_init(file: str) -> bool:
    return file in ("__init__.py", "__init__.pyi")


@lru_cache(maxsize=1)
def _folders(project: Project) -> frozenset[str]:
    """Folders with Python files in them or below them."""
    found: set[str] = set()
    for place, paths in project.by_folder.items():
        if any(path.endswith(_SUFFIXES) for path in paths):
            folder = place
            while folder and folder not in found:
                found.add(folder)
                folder = posixpath.dirname(folder)
    return frozenset(found)


@lru_cache(maxsize=1)
def _package_roots(project: Project) -> dict[str, tuple[str, ...]]:
    """The folders that each topmost package is in, by the package's name."""
    found: dict[str, set[str]] = {}
    for file in ("__init__.py", "__init__.pyi"):
        for path in project.by_name.get(file, ()):
            folder = posixpath.dirname(path)
            root = posixpath.dirname(folder)
            if folder and not _is_package(project, root):
                found.setdefault(posixpath.basename(folder), set()).add(root)
    return {name: tuple(sorted(roots)) for name, roots in found.items()}


LANGUAGE: Final = Language(
    name="python",
    suffixes=(".py", ".pyi"),
    extract=extract,
    rules=PythonRules(),
    constructors=("__init__",),
    builtins=frozenset(name for name in dir(builtins) if not name.startswith("_")),
    private_prefix="_",
    submodule=submodule,
)
