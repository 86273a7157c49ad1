"""What an expression or a type of C and C++ says by its names."""

from __future__ import annotations

from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of, named
from coatcheck_codegraph.facts import Base, Ref, Step
from coatcheck_codegraph.languages.c_declarators import qualified_names

ELEMENT: Final = "[]"
"""After the name of a collection, what is in it."""

CASTS: Final = frozenset({"const_cast", "dynamic_cast", "reinterpret_cast", "static_cast"})
_MAKERS: Final = frozenset({"make_shared", "make_unique"})
_POINTERS: Final = frozenset({"shared_ptr", "unique_ptr"})
_COLLECTIONS: Final = frozenset(
    {"array", "deque", "forward_list", "initializer_list", "list", "set", "span", "unordered_set"}
    | {"vector"}
)
_STEPS_MAX: Final = 48
_NAMES: Final = frozenset(
    {"field_identifier", "identifier", "namespace_identifier", "primitive_type", "type_identifier"}
)
_UNWRAPPED: Final = frozenset({"parenthesized_expression", "pointer_expression"})


def reference_of(node: Node | None) -> tuple[Ref, Node | None]:
    """The names of an expression, and the node of the last of them."""
    steps: list[Step] = []
    last: Node | None = None
    called = False
    element = ""
    base: Base = "opaque"
    for _ in range(_STEPS_MAX):
        if node is None:
            break
        kind = node.type
        if kind in _NAMES:
            last = last or node
            steps.append(Step(name_of(node) + element, called))
            base = "name"
            break
        if kind == "field_expression":
            field = node.child_by_field_name("field")
            last = last or field
            steps.append(Step(qualified_names(field)[-1] + element, called))
            called, element = False, ""
            node = node.child_by_field_name("argument")
        elif kind == "call_expression" and not called and not element:
            function = node.child_by_field_name("function")
            made = made_by(function)
            if made is not None:
                steps.extend(reversed(made.steps))
                base = "name"
                break
            called = True
            node = function
        elif kind in ("qualified_identifier", "template_function"):
            last = last or node
            *scope, name = qualified_names(node)
            steps.append(Step(name + element, called))
            steps.extend(Step(part) for part in reversed(scope))
            base = "name"
            break
        elif kind == "this" and not called and not element:
            base = "self"
            break
        elif kind in _UNWRAPPED:
            node = node.child_by_field_name("argument") or node.named_child(0)
        elif kind == "subscript_expression" and not called:
            element += ELEMENT
            node = node.child_by_field_name("argument")
        elif kind in ("cast_expression", "compound_literal_expression", "new_expression"):
            # The value is an instance of the type, as if it had been constructed.
            made = None if called or element else constructed(node.child_by_field_name("type"))
            if made is not None:
                last = last or node
                steps.extend(reversed(made.steps))
                base = "name"
            break
        else:
            break
    return Ref(base, tuple(reversed(steps))), last


def made_by(function: Node | None) -> Ref | None:
    """What ``static_cast<Foo *>`` or ``std::make_unique<Foo>`` gives, as a construction of Foo."""
    template = _template(function, "template_function")
    if template is None:
        return None
    if name_of(template.child_by_field_name("name")) not in CASTS | _MAKERS:
        return None
    return constructed(_first_argument(template))


def is_cast(function: Node | None) -> bool:
    """Whether what looks like a call only changes a value's type."""
    return (
        function is not None
        and function.type == "template_function"
        and name_of(function.child_by_field_name("name")) in CASTS
    )


def type_of(node: Node | None) -> Ref | None:
    """A type by its names; None for those that are built in. A smart pointer is what it owns."""
    for _ in range(_STEPS_MAX):
        if node is None:
            return None
        kind = node.type
        if kind == "type_identifier":
            return named(name_of(node), is_type=True)
        if kind in ("qualified_identifier", "template_type"):
            owned = _owned_by(node)
            if owned is None:
                return named(*qualified_names(node), is_type=True)
            node = owned
        elif kind in (
            "class_specifier",
            "enum_specifier",
            "struct_specifier",
            "union_specifier",
        ):
            names = qualified_names(node.child_by_field_name("name"))
            return named(*names, is_type=True) if names[-1] else None
        elif kind in ("type_descriptor", "dependent_type"):
            node = node.child_by_field_name("type") or node.named_child(0)
        else:
            return None
    return None


def constructed(node: Node | None) -> Ref | None:
    """A construction of the type ``node``."""
    written = type_of(node)
    return None if written is None else named(*(step.name for step in written.steps), called=True)


def element_type_of(node: Node | None) -> Ref | None:
    """What a collection of the type ``node`` has in it: Foo, if it is ``std::vector<Foo>``."""
    template = _template(node, "template_type")
    if template is None or name_of(template.child_by_field_name("name")) not in _COLLECTIONS:
        return None
    return type_of(_first_argument(template))


def is_smart_pointer(node: Node | None) -> bool:
    return node is not None and _owned_by(node) is not None


def _owned_by(node: Node) -> Node | None:
    template = _template(node, "template_type")
    if template is None or name_of(template.child_by_field_name("name")) not in _POINTERS:
        return None
    return _first_argument(template)


def _template(node: Node | None, kind: str) -> Node | None:
    """The template that a name, qualified or not, ends with."""
    for _ in range(_STEPS_MAX):
        if node is None or node.type != "qualified_identifier":
            break
        node = node.child_by_field_name("name")
    return node if node is not None and node.type == kind else None


def _first_argument(template: Node) -> Node | None:
    arguments = template.child_by_field_name("arguments")
    return None if arguments is None else arguments.named_child(0)
