"""Imports of everything: which of them may bring a name.

A file may import everything of thousands of others, and those of others again. So not all of them
are asked for every name: a file that has only what is written in it is known by its names, and is
asked for none that it does not have.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from coatcheck_codegraph.entities import Entity, Module, Package
from coatcheck_codegraph.facts import FILE
from coatcheck_codegraph.language import Outside
from coatcheck_codegraph.names import FileNames

_NAMED_BY_FOLDER: Final = "__init__."
"""How the names of files begin that have what is beside them."""

_PACKAGE_FILES_FEW: Final = 50
"""Up to that, the files of a package are known by their names, too."""

_NOBODY: Final[Mapping[str, None]] = {}


@dataclass(slots=True)
class _Stars:
    """The imports of everything at one place, by their ordinals.

    ``by_path`` has those of single files and small packages; ``others`` those, too, that may bring
    what is not written there. ``outside`` is the last of what is not in the archive.
    """

    by_path: dict[str, list[int]] = field(default_factory=dict)
    others: list[int] = field(default_factory=list)
    outside: Outside | None = None


class Stars:
    """``target`` finds what an import names; ``added_to`` are modules that other files add to."""

    def __init__(
        self,
        files: Mapping[str, FileNames],
        target: Callable[[str, int], Entity | None],
        added_to: Container[object],
    ) -> None:
        self._files = files
        self._target = target
        self._added_to = added_to
        self.forget()

    def forget(self) -> None:
        """Find everything out anew."""
        self._known: dict[tuple[str, int, bool], _Stars] = {}
        self._giving: dict[str, dict[str, None]] = {}
        self._plain: dict[str, bool] = {}

    def bringing(
        self, names: FileNames, scope: int, name: str, exported: bool, is_final: bool
    ) -> Sequence[int]:
        """The ordinals of the imports that may bring a name to a place, in order: first those of
        files that have it themselves.

        Of those that pass on what they bring alone, if ``exported``. ``is_final`` says that no
        import is just being followed, so that what is found here is true for good.
        """
        if scope not in names.stars:
            return ()
        stars = self._at(names, scope, exported, is_final)
        giving = self._giving.get(name, _NOBODY)
        if len(giving) > len(stars.by_path):
            paths: Iterable[str] = (path for path in stars.by_path if path in giving)
        else:
            paths = giving
        direct = [one for path in paths for one in stars.by_path.get(path, ())]
        return [*sorted(direct), *stars.others] if direct else stars.others

    def outside(self, names: FileNames, exported: bool, is_final: bool) -> Outside | None:
        """The last module that a file imports everything of and that is not in the archive."""
        if FILE not in names.stars:
            return None
        return self._at(names, FILE, exported, is_final).outside

    def _at(self, names: FileNames, scope: int, exported: bool, is_final: bool) -> _Stars:
        key = (names.path, scope, exported)
        found = self._known.get(key)
        if found is None:
            found = self._find(names, scope, exported)
            if is_final:
                self._known[key] = found
        return found

    def _find(self, names: FileNames, scope: int, exported: bool) -> _Stars:
        found = _Stars()
        for ordinal in names.stars[scope]:
            if exported and not names.facts.imports[ordinal].exported:
                continue
            target = self._target(names.path, ordinal)
            if isinstance(target, Outside):
                found.outside = target
                continue
            if isinstance(target, Module):
                found.by_path.setdefault(target.path, []).append(ordinal)
                if self._is_plain(target):
                    continue
            elif isinstance(target, Package) and len(target.paths) <= _PACKAGE_FILES_FEW:
                for path in target.paths:
                    found.by_path.setdefault(path, []).append(ordinal)
                    self._is_plain(Module(path))
            if target is not None:
                found.others.append(ordinal)
        return found

    def _is_plain(self, module: Module) -> bool:
        is_plain = self._plain.get(module.path)
        if is_plain is None:
            names = self._files[module.path]
            by_folder = names.language.submodule is not None and posixpath.basename(
                module.path
            ).startswith(_NAMED_BY_FOLDER)
            is_plain = not (
                by_folder
                or FILE in names.stars
                or "" in names.facts.exports
                or module in self._added_to
            )
            self._plain[module.path] = is_plain
            own = (names.members(), names.facts.variables, names.facts.exports)
            for given in (*own, names.imported.get(FILE, {})):
                for name in given:
                    self._giving.setdefault(name, {})[module.path] = None
        return is_plain
