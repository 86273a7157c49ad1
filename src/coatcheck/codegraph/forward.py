"""Which definition a declaration promises: a prototype in a header, a method in a C++ class.

A promise and its definition are one function. Calls lead to the definition, wherever the file that
calls has seen the promise. A ``static`` function keeps its promises in its own file, or in the file
that includes them; any other keeps them in whatever file defines it, if that is one. Of several, it
is the one that is nearest by its folders, and none if several are as near.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from coatcheck.codegraph.entities import Declared, Module
from coatcheck.codegraph.facts import FILE
from coatcheck.codegraph.names import FileNames
from coatcheck.codegraph.namespaces import nearest

_MACRO: Final = "#define"
_FAMILY: Final = {"cpp": "c"}
"""A header of C may promise what C++ defines. Other languages keep to themselves."""

_DEFINITIONS_MAX: Final = 100
"""Of one name, in files other than that of the promise: of more, none is certain."""

_PARAMETER_NAME: Final = re.compile(r"(?<=[\s*&>])\w+(?=\s*(?:\[\s*\]\s*)*(?:,|\)$))")
_SPACE: Final = re.compile(r"\s+")


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
        definition = _only(promise, candidates)
        if definition is not None:
            found[promise] = definition
    return found


def _may_be(promise: Declared, owner: Declared | None, definition: Declared) -> bool:
    if promise.path == definition.path or (owner is not None and owner.declaration.kind == "class"):
        return True
    return promise.declaration.static == definition.declaration.static


def _only(promise: Declared, candidates: list[Declared]) -> Declared | None:
    if len(candidates) > 1:
        candidates = [one for one in candidates if one.path == promise.path] or candidates
    if len(candidates) > 1:
        shape = _shape(promise)
        candidates = [one for one in candidates if _shape(one) == shape] or candidates
    if len(candidates) > 1:
        near = nearest({one.path for one in candidates}, promise.path)
        candidates = [one for one in candidates if one.path in near]
    paths = {one.path for one in candidates}
    # Several in one file are those that the preprocessor chooses from.
    return candidates[0] if len(paths) == 1 else None


def _shape(declared: Declared) -> str:
    """The types of a function's parameters, by which overloads are told apart."""
    _, _, parameters = declared.declaration.signature.partition("(")
    return _SPACE.sub("", _PARAMETER_NAME.sub("", parameters))
