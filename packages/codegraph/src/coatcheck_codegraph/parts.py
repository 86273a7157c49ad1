"""Classes that are declared in several parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coatcheck_codegraph.entities import Declared
from coatcheck_codegraph.facts import FILE
from coatcheck_codegraph.names import FileNames


def parts_of(files: Iterable[FileNames]) -> dict[Declared, tuple[Declared, ...]]:
    """The declarations of each class that has several, by the first of them.

    One that only names it (``class A::B`` names A) comes after those that declare it; of these, the
    longest is first: the class itself, and not what is added to it.
    """
    groups: dict[tuple[str, tuple[str, ...], str], list[Declared]] = {}
    for names in files:
        for declared in names.declared:
            if declared.declaration.partial:
                key = (names.language.name, names.facts.package, declared.declaration.qualified)
                groups.setdefault(key, []).append(declared)
    for parts in groups.values():
        parts.sort(
            key=lambda part: (
                part.declaration.kind == "namespace",
                part.declaration.line - part.declaration.end_line,
            )
        )
    return {parts[0]: tuple(parts) for parts in groups.values() if len(parts) > 1}


def holders_of(
    files: Iterable[FileNames], whole: Mapping[Declared, Declared]
) -> dict[str, set[Declared]]:
    """By name, what has a member or a field of that name inside of it: a class may inherit from
    hundreds, and not all of them are to be asked for every name."""
    found: dict[str, set[Declared]] = {}
    for names in files:
        for index, members in names.inside.items():
            if index != FILE:
                holder = names.declared[index]
                holder = whole.get(holder, holder)
                for name in members:
                    found.setdefault(name, set()).add(holder)
        for declared in names.declared:
            for name in declared.declaration.fields:
                found.setdefault(name, set()).add(whole.get(declared, declared))
    return found


class WholeMembers:
    """What classes have that are declared in several parts, however many."""

    def __init__(self, files: Mapping[str, FileNames]) -> None:
        self._files = files
        self._members: dict[Declared, dict[str, list[Declared]]] = {}
        self._fields: dict[Declared, dict[str, Declared]] = {}

    def of(self, whole: Declared, parts: Iterable[Declared]) -> Mapping[str, list[Declared]]:
        """What is declared inside of the parts, by name."""
        found = self._members.get(whole)
        if found is None:
            found = self._members[whole] = {}
            for part in parts:
                for name, declared in self._files[part.path].members(part.index).items():
                    found.setdefault(name, []).extend(declared)
        return found

    def part_with_field(
        self, whole: Declared, parts: Iterable[Declared], name: str
    ) -> Declared | None:
        """The first part that has a field of that name."""
        found = self._fields.get(whole)
        if found is None:
            found = self._fields[whole] = {}
            for part in parts:
                for field in part.declaration.fields:
                    found.setdefault(field, part)
        return found.get(name)
