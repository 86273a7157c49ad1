"""The references in Go expressions and types, by names alone.

``scopes`` has the variables of the function around, if there is one; ``parameters`` are those of
generic types and functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of, named
from coatcheck_codegraph.facts import Ref, Step
from coatcheck_codegraph.languages.scopes import STEPS_MAX, Scopes, element

# What the types of Go say: whose value it is, and what is in it.

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


def value(node: Node, scopes: Scopes | None, parameters: TypeParameters) -> Ref | None:
    """What a variable holds that gets the value of ``node``."""
    kind = node.type
    if kind == "unary_expression":
        operand = node.child_by_field_name("operand")
        if operand is not None and operand.type == "composite_literal":
            node, kind = operand, operand.type
    if kind in ("composite_literal", "type_assertion_expression"):
        return type_ref(node.child_by_field_name("type"), parameters)
    return reference(node, scopes, parameters)


def elements(node: Node, scopes: Scopes | None, parameters: TypeParameters) -> Ref | None:
    """What is in the collection that ``node`` gives."""
    if node.type == "composite_literal":
        return element_ref(node.child_by_field_name("type"), parameters)
    if node.type == "call_expression":
        return element_ref(_first_argument_of(node, "make"), parameters)
    held = reference(node, scopes, parameters)
    return None if held is None else element(held)


def made(names: tuple[str, ...], scopes: Scopes | None) -> Ref:
    """A type is called to be made, even where a variable has taken its name since."""
    if scopes is not None:
        scopes.free(names[0])
    return named(*names, called=True)


def reference(node: Node, scopes: Scopes | None, parameters: TypeParameters) -> Ref | None:
    """The names of an expression; None if it does not begin with one."""
    steps: list[Step] = []
    called = False
    inside = ""
    at: Node | None = node
    while at is not None and len(steps) < STEPS_MAX:
        kind = at.type
        if kind == "identifier":
            name = scopes.name(name_of(at)) if scopes is not None else name_of(at)
            steps.append(Step(name + inside, called))
            return Ref("name", tuple(reversed(steps)))
        if kind == "selector_expression":
            steps.append(Step(name_of(at.child_by_field_name("field")) + inside, called))
            called, inside = False, ""
            at = at.child_by_field_name("operand")
        elif kind in ("parenthesized_expression", "slice_expression"):
            inner = at.named_children
            at = inner[0] if inner else None
        elif kind == "unary_expression":
            operator = at.child_by_field_name("operator")
            sign = operator.type if operator is not None else ""
            if sign not in ("&", "*", "<-") or (sign == "<-" and inside):
                return None
            inside = "[]" if sign == "<-" else inside
            at = at.child_by_field_name("operand")
        elif called or inside:
            return None
        elif kind == "call_expression":
            new = _first_argument_of(at, "new")
            if new is not None:
                return _on_instance(new, steps, scopes, parameters)
            called = True
            at = _called(at, scopes)
        elif kind == "index_expression":
            inside = "[]"
            at = at.child_by_field_name("operand")
        elif kind in _OF_A_TYPE:
            return _on_instance(at.child_by_field_name("type"), steps, scopes, parameters)
        else:
            return None
    return None


_OF_A_TYPE = ("composite_literal", "type_assertion_expression", "type_conversion_expression")
"""Expressions that say of what type they are."""


def _called(call: Node, scopes: Scopes | None) -> Node | None:
    function = call.child_by_field_name("function")
    if function is None or function.type != "index_expression":
        return function
    # A generic function with its types, or a function out of a collection.
    operand = function.child_by_field_name("operand")
    if operand is None or operand.type != "identifier":
        return None
    is_variable = scopes is not None and scopes.known(name_of(operand))
    return None if is_variable else operand


def _on_instance(
    typed: Node | None, after: list[Step], scopes: Scopes | None, parameters: TypeParameters
) -> Ref | None:
    """``after`` on a value of the type: to make one is to call it."""
    names = type_names(typed)
    if not names or (len(names) == 1 and names[0] in parameters):
        return None
    return Ref("name", (*made(names, scopes).steps, *reversed(after)))


def _first_argument_of(call: Node, function: str) -> Node | None:
    """The first argument, if ``call`` calls that built-in function."""
    called = call.child_by_field_name("function")
    if called is None or called.type != "identifier" or name_of(called) != function:
        return None
    arguments = call.child_by_field_name("arguments")
    inside = arguments.named_children if arguments is not None else []
    return inside[0] if inside else None
