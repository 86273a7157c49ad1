"""Rust: modules are a tree of files for each crate, from its root down."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final
from weakref import WeakKeyDictionary

from coatcheck_codegraph.facts import FILE, FileFacts, Import
from coatcheck_codegraph.language import Inside, Language, Outside, words
from coatcheck_codegraph.languages.rust_extraction import extract
from coatcheck_codegraph.languages.rust_types import HERE, TYPE_MACROS
from coatcheck_codegraph.project import Project

# The names that Rust code has without an import.

BUILTINS: Final = frozenset(
    words(
        """
        std core alloc bool char str u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64
        slice Some None Ok Err drop Option Result Vec String Box ToString ToOwned Clone Copy Send
        Sync Sized Drop Fn FnMut FnOnce AsRef AsMut Into From TryFrom TryInto Default Iterator
        Extend IntoIterator DoubleEndedIterator ExactSizeIterator FromIterator Eq PartialEq Ord
        PartialOrd assert! assert_eq! assert_ne! cfg! column! compile_error! concat! dbg!
        debug_assert! debug_assert_eq! debug_assert_ne! env! eprint! eprintln! file! format!
        format_args! include! include_bytes! include_str! line! matches! module_path! option_env!
        panic! print! println! stringify! thread_local! todo! unimplemented! unreachable! vec!
        write! writeln!
        """
    )
)


# The crates of an archive: their roots, and the files of their modules.

_MANIFEST: Final = "Cargo.toml"
_ROOT_FOLDERS: Final = ("src/bin", "tests", "examples", "benches")
"""Folders in which each file is a separate crate."""


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

    def _module_file(self, path: str, names: Sequence[str], given_path: str) -> str | None:
        folder, file = posixpath.split(path)
        if given_path:
            found = posixpath.normpath(posixpath.join(folder, *names[:-1], given_path))
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


_WILDCARDS_MAX: Final = 100
"""Imports of everything in one file that are looked into for the beginning of a path."""


class RustRules:
    """Paths of ``use`` and ``mod``, in this crate, its siblings in the archive, or outside."""

    def __init__(self) -> None:
        self._crates: WeakKeyDictionary[Project, Crates] = WeakKeyDictionary()
        self._wildcards: WeakKeyDictionary[Project, dict[str, Outside | None]] = WeakKeyDictionary()

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
        that the file imports by a wildcard. Unless a macro may have made it."""
        if file.path not in self._wildcards.setdefault(project, {}):
            found = {
                target
                for imported in file.imports
                if any(binding.local == "*" for binding in imported.bindings)
                and isinstance(target := self.target(project, file, imported), Outside)
            }
            certain = len(found) == 1 and not self._of(project).has_types_by_macro(file.path)
            self._wildcards[project][file.path] = found.pop() if certain else None
        return self._wildcards[project][file.path]

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
        for other in islice(others("*"), _WILDCARDS_MAX):
            brings = self._brought(crates, file, other, first)
            if brings is not None:
                return brings, names
        root = crates.root_of(file.path)
        if root is not None and root != file.path and crates.declares(root, first):
            return root, names  # as paths were in the first edition of the language
        return None, rest

    def _brought(self, crates: Crates, file: FileFacts, star: Import, name: str) -> str | None:
        """The file from which a wildcard import brings ``name``, a module."""
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


LANGUAGE: Final = Language(
    name="rust",
    suffixes=(".rs",),
    extract=extract,
    rules=RustRules(),
    builtins=BUILTINS,
)
