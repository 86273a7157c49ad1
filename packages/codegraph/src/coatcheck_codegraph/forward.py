"""Which definition a declaration promises: a prototype in a header, a method in a C++ class.

A promise and its definition are one function. Calls lead to the definition, wherever the file that
calls has seen the promise. A ``static`` function keeps its promises in its own file, or in the file
that includes them; any other keeps them in whatever file defines it, if that is one. Of several, it
is the one that is nearest by its folders, and none if several are as near.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from coatcheck_codegraph.entities import Declared, Module
from coatcheck_codegraph.facts import FILE, Ref
from coatcheck_codegraph.names import FileNames
from coatcheck_codegraph.namespaces import nearest
from coatcheck_codegraph.shapes import is_overloadable, shape_of

_MACRO: Final = "#define"
_FAMILY: Final = {"cpp": "c"}
"""A header of C may promise what C++ defines. Other languages keep to themselves."""

_NOWHERE: Final = Ref("opaque", ())
"""The receiver of what its name does not lead to."""

_DEFINITIONS_MAX: Final = 100
"""Of one name, if overloaded or in files other than that of the promise: of more, none is certain.
"""


def definitions(
    files: Iterable[FileNames], owners: Mapping[Declared, Declared | Module]
) -> dict[Declared, Declared]:
    """By a function that is declared forward, the one that defines it.

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
    """Whether both have as many parameters. Which of these can be left out, one alone says."""
    promised, defined = promise.declaration.parameters, definition.declaration.parameters
    return promised is None or defined is None or promised[1] == defined[1]
