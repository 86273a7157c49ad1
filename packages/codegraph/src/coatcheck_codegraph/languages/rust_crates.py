"""The crates of an archive: their roots, and the files of their modules."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from coatcheck_codegraph.facts import FILE, FileFacts, Import
from coatcheck_codegraph.languages.rust_builtins import BUILTINS
from coatcheck_codegraph.languages.rust_types import TYPE_MACROS
from coatcheck_codegraph.project import Project

_MANIFEST: Final = "Cargo.toml"
_ROOT_FOLDERS: Final = ("src/bin", "tests", "examples", "benches")
"""Folders, each of whose files is a crate of its own."""


class Crates:
    """The modules of all crates, by the file they are in."""

    def __init__(self, project: Project) -> None:
        self._files = {
            path: facts for path, facts in project.files.items() if facts.language == "rust"
        }
        self._libraries: dict[str, list[str]] = {}
        self._children: dict[tuple[str, str], str] = {}
        self._parents: dict[str, str] = {}
        self._roots: dict[str, str] = {}
        self._declared: dict[str, set[str]] = {}
        self._imported: dict[str, dict[str, list[Import]]] = {}
        self._by_folder = project.by_folder
        self._folders_in: dict[str, list[str]] = {}
        for place in project.by_folder:
            self._folders_in.setdefault(posixpath.dirname(place), []).append(place)
        for folder, manifest in _folders(project):
            self._add_package(folder, manifest)
        for path in self._files:
            # Crates whose manifest is not in the archive.
            if posixpath.basename(path) in ("lib.rs", "main.rs"):
                self._add_root(path)
        for path in self._files:
            self._add_root(path)
        self._macros = self._exported_macros()
        self._type_macros = {
            name
            for facts in self._files.values()
            for name in facts.properties.get(TYPE_MACROS, "").split()
        }

    def _add_package(self, folder: str, manifest: FileFacts) -> None:
        properties = manifest.properties
        library = posixpath.normpath(
            posixpath.join(folder, properties.get("cargo.lib", "") or "src/lib.rs")
        )
        if library in self._files:
            self._add_root(library)
            if name := properties.get("cargo.name", ""):
                self._libraries.setdefault(name.replace("-", "_"), []).append(library)
        for path in ("src/main.rs", "build.rs"):
            self._add_root(posixpath.join(folder, path))
        for inside in _ROOT_FOLDERS:
            place = posixpath.join(folder, inside)
            below = [posixpath.join(each, "main.rs") for each in self._folders_in.get(place, ())]
            for path in sorted([*self._by_folder.get(place, ()), *below]):
                self._add_root(path)

    def _add_root(self, root: str) -> None:
        """Follow the modules of a crate down, unless its root belongs to another one."""
        if root not in self._files or root in self._roots:
            return
        self._roots[root] = root
        todo = [root]
        while todo:
            path = todo.pop()
            for imported in self._files[path].imports:
                if not imported.kind.startswith("mod"):
                    continue
                found = self._module_file(path, imported.module.split("::"), imported.kind[4:])
                if found is None:
                    continue
                self._children[path, imported.module] = found
                if found not in self._roots:
                    self._roots[found] = root
                    self._parents[found] = path
                    todo.append(found)

    def _module_file(self, path: str, names: Sequence[str], elsewhere: str) -> str | None:
        folder, file = posixpath.split(path)
        if elsewhere:
            found = posixpath.normpath(posixpath.join(folder, *names[:-1], elsewhere))
            return found if found in self._files else None
        if self._roots.get(path) != path and file != "mod.rs":
            folder = posixpath.join(folder, file.removesuffix(".rs"))
        below = posixpath.join(folder, *names)
        for candidate in (below + ".rs", below + "/mod.rs"):
            if candidate in self._files and candidate != path:
                return candidate
        return None

    def _exported_macros(self) -> dict[tuple[str, str], str | None]:
        """The file of each macro of a crate; None if several have one of that name."""
        found: dict[tuple[str, str], str | None] = {}
        for path, facts in self._files.items():
            own = {one.name for one in facts.declarations if one.name.endswith("!")}
            for name in own:
                key = (self._roots[path], name)
                found[key] = None if key in found else path
        return found

    # Questions

    def root_of(self, path: str) -> str | None:
        """The root of the crate that a file belongs to."""
        return self._roots.get(path)

    def parent_of(self, path: str) -> str | None:
        """The file that has the module around that of ``path``."""
        return self._parents.get(path)

    def child(self, path: str, names: Sequence[str]) -> str | None:
        """The file of a module that is declared in ``path``."""
        return self._children.get((path, "::".join(names)))

    def macro(self, path: str, name: str) -> str | None:
        """The file that has a macro of the crate of ``path``."""
        return self._macros.get((self._roots.get(path, ""), name))

    def has_types_by_macro(self, path: str) -> bool:
        """Whether a macro may have declared types at the top of a file, unseen."""
        return any(
            self.macro(path, name) is None if name not in self._type_macros else True
            for call in self._files[path].calls
            if call.caller == FILE and len(call.callee.steps) == 1
            for name in (call.callee.steps[0].name,)
            if name not in BUILTINS and not name[:1].isupper()
        )

    def library(self, name: str, near: str) -> str | None:
        """The root of the crate ``name`` in the archive; of several, the one nearest to a file."""
        roots = self._libraries.get(name, ())
        return max(roots, key=lambda root: len(posixpath.commonprefix([root, near])), default=None)

    def declares(self, path: str, name: str) -> bool:
        """Whether a file has a module, an enum or the like of that name at its top."""
        found = self._declared.get(path)
        if found is None:
            facts = self._files[path]
            found = {one.module for one in facts.imports if one.kind[:3] == "mod"}
            found.update(
                one.name for one in facts.declarations if one.parent < 0 and one.kind != "function"
            )
            self._declared[path] = found
        return name in found

    def imports(self, path: str, name: str) -> bool:
        """Whether a file imports something by that name."""
        return name in self.importing(path)

    def importing(self, path: str) -> Mapping[str, Sequence[Import]]:
        """The imports of a file by the names that they bring; those of everything by ``*``."""
        found = self._imported.get(path)
        if found is None:
            found = self._imported[path] = {}
            for imported in self._files[path].imports:
                for name in dict.fromkeys(binding.local for binding in imported.bindings):
                    found.setdefault(name, []).append(imported)
        return found


def _folders(project: Project) -> Iterator[tuple[str, FileFacts]]:
    for manifest in project.manifests.get(_MANIFEST, ()):
        yield posixpath.dirname(manifest.path), manifest
