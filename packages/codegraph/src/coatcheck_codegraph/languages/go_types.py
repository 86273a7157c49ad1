"""What the types of Go say: whose value it is, and what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of, named
from coatcheck_codegraph.facts import Ref

_INNER_FIELD: Final = {
    "slice_type": "element",
    "array_type": "element",
    "implicit_length_array_type": "element",
    "map_type": "value",
    "channel_type": "value",
}
"""Collections, by the field of the node that has the type of what is in them."""

_DEPTH_MAX: Final = 32

_NO_BOUNDS: Final[Mapping[str, Ref | None]] = {"any": None, "comparable": None}

TypeParameters = Mapping[str, Ref | None]
"""The parameters of a generic function or type: the interface that each has to be, if it has a
name."""


def type_names(node: Node | None) -> tuple[str, ...]:
    """The names of a type: ``*pkg.List[int]`` is ``pkg``, ``List``. Empty if it has none."""
    for _ in range(_DEPTH_MAX):
        if node is None:
            return ()
        kind = node.type
        if kind in ("type_identifier", "identifier"):
            return (name_of(node),)
        if kind == "qualified_type":
            return (
                name_of(node.child_by_field_name("package")),
                name_of(node.child_by_field_name("name")),
            )
        if kind == "generic_type":
            node = node.child_by_field_name("type")
        elif kind in ("pointer_type", "parenthesized_type", "type_elem", "type_constraint"):
            inside = node.named_children
            node = inside[0] if len(inside) == 1 else None
        else:
            return ()
    return ()


def type_ref(node: Node | None, parameters: TypeParameters) -> Ref | None:
    """The type as a reference; None if it has no name."""
    names = type_names(node)
    if not names:
        return None
    if len(names) == 1 and names[0] in parameters:
        return parameters[names[0]]
    return named(*names, is_type=True)


def element_ref(node: Node | None, parameters: TypeParameters) -> Ref | None:
    """The type of what is in a collection; None if the type is no collection of named things."""
    if node is None:
        return None
    field = _INNER_FIELD.get(node.type)
    if field is None:
        return None
    return type_ref(node.child_by_field_name(field), parameters)


def type_parameters(node: Node | None) -> dict[str, Ref | None]:
    """Of ``[T any, K interface]``."""
    found: dict[str, Ref | None] = {}
    if node is None:
        return found
    for declared in node.named_children:
        if declared.type != "type_parameter_declaration":
            continue
        bound = type_ref(declared.child_by_field_name("type"), _NO_BOUNDS)
        for name in declared.children_by_field_name("name"):
            found[name_of(name)] = bound
    return found
