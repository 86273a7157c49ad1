"""Chooses among several declarations of one name: overloads, prototypes, partial classes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from coatcheck_codegraph.entities import Declared, Entity, Module, Overloads
from coatcheck_codegraph.facts import FILE, Ref
from coatcheck_codegraph.names import FileNames, Neighbourhood
from coatcheck_codegraph.namespaces import nearest

# Functions of one name differ in the types of their parameters, and in their number.

_PARAMETER_NAME: Final = re.compile(r"(?<=[\s*&>])\w+(?=\s*(?:\[\s*\]\s*)*(?:,|\)[\s\w&]*$))")
_SPACE: Final = re.compile(r"\s+")


def shape_of(declared: Declared) -> str:
    """The types of a function's parameters, which distinguish overloads."""
    _, _, parameters = declared.declaration.signature.partition("(")
    return _SPACE.sub("", _PARAMETER_NAME.sub("", parameters))


def is_overloadable(declared: Declared) -> bool:
    """Whether a function may have overloads: others of the same name in the same place."""
    declaration = declared.declaration
    return declaration.kind == "function" and declaration.parameters is not None


def fits(parameters: tuple[int, int] | None, arguments: int) -> bool:
    """Whether a function with these ``parameters`` accepts this number of arguments."""
    if parameters is None or arguments < 0:
        return True
    least, most = parameters
    return least <= arguments and (most < 0 or arguments <= most)


def levels_of(entity: Entity | None) -> tuple[tuple[Declared, ...], ...]:
    """The functions that an entity stands for, if it may have overloads in other places."""
    if isinstance(entity, Declared):
        return ((entity,),) if is_overloadable(entity) else ()
    return entity.levels if isinstance(entity, Overloads) else ()


# Choosing the declaration that a name means, if that is certain.

_CANDIDATES_MAX: Final = 100
"""The number of candidates that are examined. With more of them, overloads and names declared in
several files mean nothing; within one file, others are redefinitions of one thing."""


class Choices:
    """Chooses among candidates.

    ``whole`` has, for each part of a class, the one that stands for all of them.
    """

    def __init__(
        self,
        files: Mapping[str, FileNames],
        whole: Mapping[Declared, Declared],
        neighbourhood: Neighbourhood,
    ) -> None:
        self._files = files
        self._whole = whole
        self._neighbourhood = neighbourhood
        self._definitions: Mapping[Declared, Declared] = {}
        self._parameters: dict[Declared, tuple[int, int]] = {}
        """The parameters of definitions whose forward declarations have the default values."""

    def know(self, definitions: Mapping[Declared, Declared]) -> None:
        """From now on, treat a forward declaration and its definition as one thing."""
        self._definitions = definitions
        for promise, definition in definitions.items():
            promised, defined = promise.declaration.parameters, definition.declaration.parameters
            if promised is not None and defined is not None:
                least, most = self._parameters.get(definition, defined)
                self._parameters[definition] = (min(least, promised[0]), most)

    def one_of(
        self, candidates: list[Declared], as_type: bool, called: bool, asker: str
    ) -> Declared | Overloads | None:
        """The declaration that a name means among those in one place, or the overloads that it
        stands for."""
        if len(candidates) == 1:
            return self._whole.get(candidates[0], candidates[0])
        if not as_type and any(map(is_overloadable, candidates[:_CANDIDATES_MAX])):
            if len(candidates) > _CANDIDATES_MAX:
                return Overloads(())
            functions = [one for one in candidates if one.declaration.kind == "function"]
            if called or len(functions) == len(candidates):
                return self._overloads(functions, asker)
        if len(candidates) > _CANDIDATES_MAX:
            if candidates[0].path != candidates[-1].path:
                return None
            last = self._files[candidates[0].path].language.last_wins
            candidates = candidates[-_CANDIDATES_MAX:] if last else candidates[:_CANDIDATES_MAX]
        defined = [one for one in candidates if not one.declaration.forward] or candidates
        if as_type:
            fitting = [one for one in defined if one.declaration.kind != "function"] or defined
        elif called:
            fitting = [one for one in defined if one.declaration.kind == "function"] or defined
        else:
            fitting = defined
        if len({one.path for one in fitting}) > 1:
            fitting = self._nearest(fitting, asker)
            if len({self.identity(one) for one in fitting}) > 1 and (
                len({one.path for one in fitting}) > 1
            ):
                return None
        last = self._files[fitting[0].path].language.last_wins
        chosen = fitting[-1 if last else 0]
        return self._whole.get(chosen, chosen)

    def _overloads(self, functions: list[Declared], asker: str) -> Declared | Overloads:
        if len({one.path for one in functions}) > 1 and not any(map(self._is_member, functions)):
            functions = self._seen(functions, asker)
        distinct = tuple(dict.fromkeys(map(self.identity, functions)))
        return distinct[0] if len(distinct) == 1 else Overloads((distinct,))

    def _is_member(self, function: Declared) -> bool:
        declaration = function.declaration
        if declaration.receiver is not None:
            return True
        around = declaration.parent
        return around != FILE and self._files[function.path].declaration(around).kind == "class"

    def chosen(self, overloads: Overloads, arguments: int, asker: str) -> Declared | None:
        """The overload that a call with this number of arguments runs: among the nearest that
        accept them, if that is one function."""
        levels = [(level, False) for level in overloads.levels]
        levels += [(level, True) for level in overloads.extensions]
        for level, as_method in levels:
            fitting = [one for one in level if self._takes(one, arguments, as_method)]
            if fitting:
                return self._one_function(fitting, asker)
        first = levels[0][0] if levels else ()
        # A single function is meant with any arguments: its default values may not be visible.
        return first[0] if len(first) == 1 else None

    def _takes(self, function: Declared, arguments: int, as_method: bool) -> bool:
        declaration = function.declaration
        if not as_method and declaration.receiver is not None and arguments >= 0:
            # An extension method that is called as a function gets the receiver as an argument.
            arguments -= self._files[function.path].language.extension_methods
        return fits(self._parameters.get(function, declaration.parameters), arguments)

    def _one_function(self, fitting: list[Declared], asker: str) -> Declared | None:
        """The single function that all of these declare, repeatedly or for different platforms."""
        if len(fitting) == 1:
            return fitting[0]
        if len({shape_of(one) for one in fitting}) > 1:
            return None
        defined = [one for one in fitting if not one.declaration.forward]
        fitting = self._nearest(defined or fitting, asker)
        is_one = len(fitting) == 1 or not defined
        return fitting[0] if is_one and len({one.path for one in fitting}) == 1 else None

    def _seen(self, candidates: list[Declared], asker: str) -> list[Declared]:
        """The candidates that are visible in a file, if any are."""
        if not asker:
            return candidates
        ranks = self._neighbourhood.ranks(self._files[asker])
        seen = [one for one in candidates if one.path == asker or one.path in ranks]
        return seen or candidates

    def _nearest(self, candidates: list[Declared], asker: str) -> list[Declared]:
        if not asker:
            return candidates
        own = [one for one in candidates if one.path == asker]
        if own:
            return own
        ranks = self._neighbourhood.ranks(self._files[asker])
        return [one for one in candidates if one.path in ranks] or candidates

    def identity(self, declared: Declared) -> Declared:
        declared = self._whole.get(declared, declared)
        return self._definitions.get(declared, declared)

    def agreed(self, found: Sequence[Entity | None]) -> Entity | None:
        """The one entity that all of them are, if they are; overloads are combined."""
        present = [one for one in found if one is not None]
        if len(present) > 1 and all(map(levels_of, present)):
            nearest = [function for one in present for function in levels_of(one)[0]]
            few = len(nearest) <= _CANDIDATES_MAX
            return self._overloads(nearest, "") if few else Overloads(())
        first: Entity | None = None
        for one in found:
            entity = self.identity(one) if isinstance(one, Declared) else one
            if first is None:
                first = entity
            elif entity is not None and entity != first:
                return None
        return first


# Finding the definition of a forward declaration: a prototype in a header, a method in a C++ class.
#
# A forward declaration (a promise) and its definition are one function. A call leads to the
# definition if the calling file sees the promise. The definition of a ``static`` promise is in the
# same file, or in the file that includes it; that of any other may be in any file, if there is one.
# Of several definitions, the nearest by folders counts, and none if several are equally near.

_MACRO: Final = "#define"
_FAMILY: Final = {"cpp": "c"}
"""A header of C may declare what C++ defines. Other languages are not mixed."""

_NOWHERE: Final = Ref("opaque", ())
"""The receiver of a function that its name does not lead to."""

_DEFINITIONS_MAX: Final = 100
"""Definitions of one name, overloaded or in other files: with more of them, none is certain."""


def definitions(
    files: Iterable[FileNames], owners: Mapping[Declared, Declared | Module]
) -> dict[Declared, Declared]:
    """The definition of each forward-declared function.

    ``owners`` has the classes of functions that are written outside of them.
    """
    promised: list[tuple[Declared, Declared | None]] = []
    by_name: dict[tuple[str, str], list[Declared]] = {}
    by_path: dict[tuple[str, str], list[Declared]] = {}
    by_owner: dict[tuple[Declared | Module, str], list[Declared]] = {}
    languages: dict[str, str] = {}
    for names in files:
        family = languages[names.path] = _FAMILY.get(names.language.name, names.language.name)
        for declared in names.declared:
            declaration = declared.declaration
            if declaration.forward:
                parent = declaration.parent
                promised.append((declared, None if parent == FILE else names.declared[parent]))
            elif declaration.kind == "function" and not declaration.signature.startswith(_MACRO):
                by_name.setdefault((family, declaration.qualified), []).append(declared)
                by_path.setdefault((names.path, declaration.qualified), []).append(declared)
                if declared in owners:
                    by_owner.setdefault((owners[declared], declaration.name), []).append(declared)
    found: dict[Declared, Declared] = {}
    for promise, owner in promised:
        declaration = promise.declaration
        candidates = by_owner.get((owner, declaration.name), []) if owner is not None else []
        if not candidates:
            candidates = by_path.get((promise.path, declaration.qualified), [])
        if not candidates:
            everywhere = by_name.get((languages[promise.path], declaration.qualified), ())
            if len(everywhere) <= _DEFINITIONS_MAX:
                candidates = [one for one in everywhere if _may_be(promise, owner, one)]
        if is_overloadable(promise) and len(candidates) > _DEFINITIONS_MAX:
            continue
        definition = _only(promise, candidates)
        if definition is not None:
            found[promise] = definition
    return found


def _may_be(promise: Declared, owner: Declared | None, definition: Declared) -> bool:
    if promise.path == definition.path or (owner is not None and owner.declaration.kind == "class"):
        return True
    return promise.declaration.static == definition.declaration.static


def _only(promise: Declared, candidates: list[Declared]) -> Declared | None:
    candidates = [one for one in candidates if _take_as_many(promise, one)]
    if len(candidates) > 1:
        candidates = [one for one in candidates if one.path == promise.path] or candidates
    if len(candidates) > 1:
        shape = shape_of(promise)
        alike = [one for one in candidates if shape_of(one) == shape]
        overloaded = is_overloadable(promise) and len({shape_of(one) for one in candidates}) > 1
        if overloaded and not alike:
            return None  # it may be any of them: one type can be written in several ways
        candidates = alike or candidates
    if len(candidates) > 1:
        near = nearest({one.path for one in candidates}, promise.path)
        candidates = [one for one in candidates if one.path in near]
    if len(candidates) > 1 and any(one.declaration.receiver == _NOWHERE for one in candidates):
        return None  # the preprocessor chooses one of them
    paths = {one.path for one in candidates}
    return candidates[0] if len(paths) == 1 else None


def _take_as_many(promise: Declared, definition: Declared) -> bool:
    """Whether both have the same number of parameters. Only one of them has the default values."""
    promised, defined = promise.declaration.parameters, definition.declaration.parameters
    return promised is None or defined is None or promised[1] == defined[1]


# Classes that are declared in several parts.


def parts_of(files: Iterable[FileNames]) -> dict[Declared, tuple[Declared, ...]]:
    """The declarations of each class that has several, by the first of them.

    A part that only names the class (``class A::B`` names A) comes after those that declare it. Of
    these, the longest is first: it is the class itself, and not an addition to it.
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
    """The classes that have a member or a field of a name, by that name. A class may inherit from
    hundreds of others, and searching all of them for every name would be slow."""
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
    """The members of classes that are declared in several parts."""

    def __init__(self, files: Mapping[str, FileNames]) -> None:
        self._files = files
        self._members: dict[Declared, dict[str, list[Declared]]] = {}
        self._fields: dict[Declared, dict[str, Declared]] = {}

    def of(self, whole: Declared, parts: Iterable[Declared]) -> Mapping[str, list[Declared]]:
        """The declarations inside the parts, by name."""
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
