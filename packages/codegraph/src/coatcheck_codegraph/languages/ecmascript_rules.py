"""Resolves JavaScript imports to files, as Node, bundlers and TypeScript do."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final
from weakref import WeakKeyDictionary

from coatcheck_codegraph.facts import FileFacts, Import
from coatcheck_codegraph.language import Inside, Outside
from coatcheck_codegraph.languages.ecmascript_builtins import NODE_MODULES
from coatcheck_codegraph.namespaces import nearest
from coatcheck_codegraph.project import MANIFEST, Project

_JAVASCRIPT: Final = (".js", ".jsx", ".mjs", ".cjs")
_TYPESCRIPT: Final = (".ts", ".tsx", ".mts", ".cts", ".d.ts", ".d.mts", ".d.cts")
_SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    ".js": (".ts", ".tsx", ".jsx", ".d.ts"),
    ".jsx": (".tsx", ".d.ts"),
    ".mjs": (".mts", ".d.mts"),
    ".cjs": (".cts", ".d.cts"),
}
"""What a file is compiled from, by the suffix under which it is imported."""

_BUILT: Final = re.compile(r"(^|/)(dist|lib|build|out|esm|cjs|es|umd)(?=/)")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:")
_PACKAGE: Final = re.compile(r"(@[^/@]+/)?[^/@]+")
_COPIES_MAX: Final = 20
"""Packages of one name in one archive that are looked into: the nearest."""
_PATTERNS_MAX: Final = 200
"""Of one configuration, that say where specifiers lead."""
_ENTRIES: Final = ("npm.module", "npm.main", "npm.types")


class EcmascriptRules:
    """The rules of JavaScript and TypeScript."""

    def __init__(self) -> None:
        self._packages: WeakKeyDictionary[Project, Mapping[str, tuple[str, ...]]] = (
            WeakKeyDictionary()
        )

    def target(self, project: Project, file: FileFacts, imported: Import) -> Inside | Outside:
        """A file of the archive, or the package (Node's as ``node:fs``) that is outside of it.

        What is named by a path and is not in the archive (a stylesheet, a generated file) is
        outside under that path.
        """
        specifier = imported.module.split("?")[0]
        if specifier.startswith(("./", "../")) or specifier in (".", ".."):
            path = _joined(posixpath.dirname(file.path), specifier)
            found = _file(project, path, file)
            return Inside((found,)) if found is not None else Outside(path or specifier)
        found = self._by_configuration(project, file, specifier)
        if found is None:
            found = self._in_package(project, file, specifier)
        if found is None:
            found = _by_alias(project, file, specifier)
        return Outside(_known_as(specifier)) if found is None else Inside((found,))

    def neighbours(self, project: Project, file: FileFacts) -> Iterable[str]:
        """Modules see nothing that they do not import."""
        del project, file
        return ()

    def root(self, project: Project, file: FileFacts, name: str) -> Inside | None:
        """``exports`` is the file itself."""
        del project
        return Inside((file.path,)) if name == "exports" else None

    def _by_configuration(self, project: Project, file: FileFacts, specifier: str) -> str | None:
        """By ``paths`` and ``baseUrl`` of the nearest configuration that has any."""
        for folder in _folders_above(file.path):
            for name in ("tsconfig.json", "jsconfig.json"):
                manifest = project.files.get(posixpath.join(folder, name))
                if manifest is None or manifest.language != MANIFEST:
                    continue
                base = manifest.properties.get("ts.baseUrl")
                root = _joined(folder, base or ".")
                for candidate in _mapped(manifest.properties.get("ts.paths", ""), specifier):
                    found = _file(project, _joined(root, candidate), file)
                    if found is not None:
                        return found
                if base is not None:
                    found = _file(project, _joined(root, specifier), file)
                    if found is not None:
                        return found
        return None

    def _in_package(self, project: Project, file: FileFacts, specifier: str) -> str | None:
        """By the name of a package of the archive: of a workspace, or the file's own."""
        match = _PACKAGE.match(specifier)
        if match is None:
            return None
        manifests = self._named(project).get(match.group(), ())
        rest = specifier[match.end() :].strip("/")
        if len(manifests) > _COPIES_MAX:
            manifests = nearest(manifests, file.path)[:_COPIES_MAX]
        for path in sorted(manifests, key=lambda found: _farness(found, file.path)):
            manifest = project.files[path]
            folder = posixpath.dirname(manifest.path)
            found = (
                _first(_file(project, path, file) for path in _below(folder, rest))
                if rest
                else _entry(project, manifest, file)
            )
            if found is not None:
                return found
        return None

    def _named(self, project: Project) -> Mapping[str, tuple[str, ...]]:
        """The paths of the manifests of packages, by the package's name."""
        known = self._packages.get(project)
        if known is None:
            packages: dict[str, list[str]] = {}
            for manifest in project.manifests.get("package.json", ()):
                name = manifest.properties.get("npm.name")
                if name:
                    packages.setdefault(name, []).append(manifest.path)
            known = {name: tuple(found) for name, found in packages.items()}
            self._packages[project] = known
        return known


def _first(found: Iterable[str | None]) -> str | None:
    return next((path for path in found if path is not None), None)


def _joined(folder: str, path: str) -> str:
    """A path from the archive's top; empty for the top itself."""
    joined = posixpath.normpath(posixpath.join(folder, path))
    return "" if joined == "." else joined.lstrip("/")


def _folders_above(path: str) -> Iterator[str]:
    folder = posixpath.dirname(path)
    while folder:
        yield folder
        folder = posixpath.dirname(folder)
    yield ""


def _file(project: Project, path: str, importer: FileFacts, *, folders: bool = True) -> str | None:
    """The file that a path means: itself, with a suffix, its source, or a folder's entry."""
    if path in project and project.files[path].language in _LANGUAGES:
        return path
    if path:
        stem, suffix = posixpath.splitext(path)
        for source in _SOURCES.get(suffix, ()):
            if stem + source in project:
                return stem + source
        for suffix in _suffixes(importer):
            if path + suffix in project:
                return path + suffix
    if not folders:
        return None
    manifest = project.files.get(posixpath.join(path, "package.json"))
    if manifest is not None and manifest.language == MANIFEST:
        found = _by_entries(project, manifest, importer)
        if found is not None:
            return found
    return _index(project, path, importer)


_LANGUAGES: Final = frozenset({"javascript", "typescript", "tsx"})


def _suffixes(importer: FileFacts) -> tuple[str, ...]:
    if importer.language == "javascript":
        return _JAVASCRIPT + _TYPESCRIPT
    return _TYPESCRIPT + _JAVASCRIPT


def _index(project: Project, folder: str, importer: FileFacts) -> str | None:
    for suffix in _suffixes(importer):
        path = posixpath.join(folder, "index" + suffix)
        if path in project:
            return path
    return None


def _entry(project: Project, manifest: FileFacts, importer: FileFacts) -> str | None:
    """The file that a package is imported as."""
    folder = posixpath.dirname(manifest.path)
    return (
        _by_entries(project, manifest, importer)
        or _index(project, posixpath.join(folder, "src"), importer)
        or _index(project, folder, importer)
        or _index(project, posixpath.join(folder, "lib"), importer)
    )


def _by_entries(project: Project, manifest: FileFacts, importer: FileFacts) -> str | None:
    folder = posixpath.dirname(manifest.path)
    for entry in _ENTRIES:
        named = manifest.properties.get(entry)
        if named:
            for path in _below(folder, named):
                found = _file(project, path, importer, folders=False) or _index(
                    project, path, importer
                )
                if found is not None:
                    return found
    return None


def _below(folder: str, path: str) -> Iterator[str]:
    """Where a file of a package is: as said; or its source, if only what is built of it is said."""
    path = _joined("", path)
    yield _joined(folder, path)
    sources = _BUILT.sub(r"\1src", path, count=1)
    if sources != path:
        yield _joined(folder, sources)
        if sources.endswith(".d.ts"):
            yield _joined(folder, sources.removesuffix(".d.ts"))
    else:
        yield _joined(folder, posixpath.join("src", path))


def _by_alias(project: Project, file: FileFacts, specifier: str) -> str | None:
    """``@/x`` and ``~/x`` are not packages: bundlers map them to the root of the sources."""
    if not specifier.startswith(("@/", "~/")):
        return None
    for folder in _folders_above(file.path):
        if posixpath.join(folder, "package.json") in project or not folder:
            for root in ("src", ""):
                path = _joined(folder, posixpath.join(root, specifier[2:]))
                found = _file(project, path, file)
                if found is not None:
                    return found
    return None


def _mapped(paths: str, specifier: str) -> Iterator[str]:
    """Where the ``paths`` of a configuration send a specifier; the longest pattern counts first."""
    for before, star, after, targets in _patterns(paths):
        if star:
            if (
                len(specifier) >= len(before) + len(after)
                and specifier.startswith(before)
                and specifier.endswith(after)
            ):
                matched = specifier[len(before) : len(specifier) - len(after)]
                yield from (target.replace("*", matched, 1) for target in targets)
        elif specifier == before:
            yield from targets


@lru_cache(maxsize=64)
def _patterns(paths: str) -> tuple[tuple[str, bool, str, tuple[str, ...]], ...]:
    try:
        said = json.loads(paths) if paths else {}
    except (ValueError, RecursionError):
        return ()
    found = []
    for pattern, targets in said.items() if isinstance(said, dict) else ():
        before, star, after = pattern.partition("*")
        if isinstance(targets, list):
            usable = tuple(target for target in targets if isinstance(target, str))
            found.append((before, bool(star), after, usable))
    return tuple(sorted(found, key=lambda one: (one[1], -len(one[0]), one[0])))[:_PATTERNS_MAX]


def _farness(manifest: str, file: str) -> tuple[bool, int, str]:
    """Copies of one package: the nearest, and an installed one last."""
    folder = posixpath.dirname(manifest)
    shared = len(posixpath.commonprefix([folder.split("/"), file.split("/")]))
    return "node_modules" in folder.split("/"), -shared, manifest


def _known_as(specifier: str) -> str:
    """The package of a specifier: ``lodash`` of ``lodash/fp``, ``@a/b`` of ``@a/b/c``."""
    if specifier.startswith("node:"):
        specifier = specifier.removeprefix("node:")
        return "node:" + specifier.split("/")[0]
    top = specifier.split("/")[0]
    if top in NODE_MODULES:
        return "node:" + top
    if _SCHEME.match(specifier) or specifier.startswith(("#", "/", "@/", "~/")):
        return specifier
    match = _PACKAGE.match(specifier)
    return specifier if match is None else match.group()
