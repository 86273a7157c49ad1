"""The names of one file, by the place in it where they are declared."""

from __future__ import annotations

from collections.abc import Mapping

from coatcheck_codegraph.entities import Declared
from coatcheck_codegraph.facts import FILE, Declaration, FileFacts
from coatcheck_codegraph.language import Language

ImportedName = tuple[int, str]
"""Which of the file's imports, and what it is called over there."""


class FileNames:
    """What a file declares and imports."""

    __slots__ = ("declared", "facts", "imported", "inside", "language", "path", "stars")

    def __init__(self, facts: FileFacts, language: Language) -> None:
        self.path = facts.path
        self.facts = facts
        self.language = language
        self.declared = [
            Declared(facts.path, index, declaration)
            for index, declaration in enumerate(facts.declarations)
        ]
        self.inside: dict[int, dict[str, list[Declared]]] = {}
        for declared in self.declared:
            # A method that is written outside of its class is found through the class alone.
            if declared.declaration.receiver is None or language.extension_methods:
                place = self.inside.setdefault(declared.declaration.parent, {})
                place.setdefault(declared.declaration.name, []).append(declared)
        self.imported: dict[int, dict[str, list[ImportedName]]] = {}
        self.stars: dict[int, list[int]] = {}
        for ordinal, imported in enumerate(facts.imports):
            for binding in imported.bindings:
                if binding.local == "*":
                    self.stars.setdefault(imported.scope, []).append(ordinal)
                else:
                    names = self.imported.setdefault(imported.scope, {})
                    names.setdefault(binding.local, []).append((ordinal, binding.remote))

    def members(self, index: int = FILE) -> Mapping[str, list[Declared]]:
        """What is declared directly inside of a declaration, or at the top of the file."""
        return self.inside.get(index, _NOTHING)

    def declaration(self, index: int) -> Declaration:
        return self.facts.declarations[index]


_NOTHING: Mapping[str, list[Declared]] = {}
