"""All files of a project, indexed for the languages' rules."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from functools import cached_property
from sys import intern
from typing import Final

from coatcheck_codegraph.facts import Call, Declaration, FileFacts, Ref

# Equal references are stored once, because code repeats them very often.


class Sharing:
    """Replaces references with equal ones that were met before."""

    def __init__(self) -> None:
        self._known: dict[Ref, Ref] = {}

    def among(self, facts: FileFacts) -> FileFacts:
        """The same facts, changed in place to share equal references."""
        share = self._known.setdefault
        facts.calls = [
            Call(call.line, call.caller, share(call.callee, call.callee), call.arguments)
            for call in facts.calls
        ]
        for declaration in facts.declarations:
            for held in (declaration.locals, declaration.fields):
                for name, ref in held.items():
                    held[name] = share(ref, ref)
        if facts.javascript_values is not None:
            facts.javascript_values.names = list(map(intern, facts.javascript_values.names))
        return facts


MANIFEST: Final = "manifest"
"""The language of files that say how other files are found."""

_ENDINGS_MAX: Final = 1000
"""The number of path suffixes that are cached at a time."""


class Project:
    """Files by path, by folder, by the end of their path, and by namespace."""

    def __init__(self, files: Iterable[FileFacts]) -> None:
        shared = Sharing()
        gathered = [shared.among(facts) for facts in files]
        self.files: Mapping[str, FileFacts] = {
            facts.path: facts for facts in sorted(gathered, key=lambda facts: facts.path)
        }
        self._ending: dict[str, tuple[str, ...]] = {}

    def __contains__(self, path: str) -> bool:
        return path in self.files

    @cached_property
    def by_folder(self) -> Mapping[str, tuple[str, ...]]:
        """The paths of the files in each folder, in order. The top folder is ``""``."""
        folders: dict[str, list[str]] = {}
        for path in self.files:
            folders.setdefault(posixpath.dirname(path), []).append(path)
        return {folder: tuple(paths) for folder, paths in folders.items()}

    @cached_property
    def by_name(self) -> Mapping[str, tuple[str, ...]]:
        """Paths by the file's name."""
        names: dict[str, list[str]] = {}
        for path in self.files:
            names.setdefault(posixpath.basename(path), []).append(path)
        return {name: tuple(paths) for name, paths in names.items()}

    def ending(self, suffix: str) -> tuple[str, ...]:
        """The paths that end with ``suffix``, whole names only: ``a/b/c.h`` ends with ``b/c.h``."""
        found = self._ending.get(suffix)
        if found is None:
            candidates = self.by_name.get(posixpath.basename(suffix), ())
            below = "/" + suffix
            found = tuple(path for path in candidates if path == suffix or path.endswith(below))
            if len(self._ending) >= _ENDINGS_MAX:
                self._ending.clear()
            self._ending[suffix] = found
        return found

    @cached_property
    def packages(self) -> Mapping[tuple[str, ...], tuple[str, ...]]:
        """The paths of the files of each namespace that files declare."""
        packages: dict[tuple[str, ...], list[str]] = {}
        for path, facts in self.files.items():
            if facts.package:
                packages.setdefault(facts.package, []).append(path)
        return {package: tuple(paths) for package, paths in packages.items()}

    @cached_property
    def manifests(self) -> Mapping[str, tuple[FileFacts, ...]]:
        """The manifests by their file's name: ``go.mod``, ``package.json``."""
        found: dict[str, list[FileFacts]] = {}
        for path, facts in self.files.items():
            if facts.language == MANIFEST:
                found.setdefault(posixpath.basename(path), []).append(facts)
        return {name: tuple(facts) for name, facts in found.items()}

    def nearest_manifest(self, path: str, name: str) -> FileFacts | None:
        """The manifest in the file's folder or the nearest one above it."""
        folder = posixpath.dirname(path)
        while True:
            facts = self.files.get(posixpath.join(folder, name))
            if facts is not None and facts.language == MANIFEST:
                return facts
            if not folder:
                return None
            folder = posixpath.dirname(folder)

    def top_level(self, path: str) -> Iterable[tuple[int, Declaration]]:
        """The declarations of a file that are not inside another."""
        for index, declaration in enumerate(self.files[path].declarations):
            if declaration.parent < 0:
                yield index, declaration
