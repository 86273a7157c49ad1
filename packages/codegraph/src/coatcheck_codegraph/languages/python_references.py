"""The references in Python expressions and annotations, and the types in signatures."""

from __future__ import annotations

import re
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of, text
from coatcheck_codegraph.facts import Ref, Step
from coatcheck_codegraph.language import words

OPAQUE: Final = Ref("opaque", ())
"""A value of which nothing is known, except that it is there."""

_STEPS_MAX: Final = 32
_ANNOTATION_DEPTH_MAX: Final = 20
_DOTTED_NAME: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")

_TYPE_OF_LITERAL: Final = {
    "string": "str",
    "concatenated_string": "str",
    "integer": "int",
    "float": "float",
    "list": "list",
    "list_comprehension": "list",
    "dictionary": "dict",
    "dictionary_comprehension": "dict",
    "set": "set",
    "set_comprehension": "set",
    "tuple": "tuple",
}
_TRANSPARENT: Final = frozenset({"Optional", "Annotated", "Final", "ClassVar", "Required"})
"""Annotations that say something of the type inside of them, and leave it as it is."""


def first_inside(node: Node) -> Node | None:
    """The first node inside of another that is more than punctuation."""
    return next((child for child in node.named_children if child.type != "comment"), None)


def reference(node: Node | None) -> Ref:
    """An expression as far as it is made of names."""
    steps: list[Step] = []
    called = False
    while node is not None and len(steps) < _STEPS_MAX:
        kind = node.type
        if kind == "identifier":
            steps.append(Step(name_of(node), called))
            return Ref("name", tuple(reversed(steps)))
        if kind == "attribute":
            steps.append(Step(name_of(node.child_by_field_name("attribute")), called))
            called = False
            node = node.child_by_field_name("object")
        elif kind == "call":
            if called:
                return OPAQUE  # what a call gives is called: no name for that
            node = node.child_by_field_name("function")
            if node is not None and node.type == "identifier" and node.text == b"super" and steps:
                return Ref("super", tuple(reversed(steps)))
            called = True
        elif kind in ("parenthesized_expression", "await"):
            node = first_inside(node)
        elif kind in _TYPE_OF_LITERAL and not called:
            steps.append(Step(_TYPE_OF_LITERAL[kind]))
            return Ref("name", tuple(reversed(steps)), is_type=len(steps) == 1)
        else:
            return OPAQUE
    return OPAQUE


def annotation(node: Node | None, depth: int = 0) -> Ref | None:
    """The type that an annotation gives, if it is one class; None if it says nothing.

    ``Optional[X]`` and ``X | None`` are X; of a collection it is the collection.
    """
    if node is None or depth > _ANNOTATION_DEPTH_MAX:
        return None
    match node.type:
        case "type" | "parenthesized_expression":
            return annotation(first_inside(node), depth + 1)
        case "identifier" if node.text == b"Self":
            return Ref("self", (), is_type=True)
        case "identifier" | "attribute":
            ref = reference(node)
            return Ref(ref.base, ref.steps, is_type=True)
        case "string":
            return _quoted(node)
        case "generic_type" | "subscript":
            return _generic(node, depth)
        case "binary_operator" | "union_type":
            return _either(node.named_children, depth)
        case _:
            return None


def _quoted(node: Node) -> Ref | None:
    for child in node.named_children:
        if child.type == "string_content" and _DOTTED_NAME.fullmatch(text(child).strip()):
            names = text(child).strip().split(".")
            if names == ["Self"]:
                return Ref("self", (), is_type=True)
            return Ref("name", tuple(Step(name) for name in names), is_type=True)
    return None


def _generic(node: Node, depth: int) -> Ref | None:
    children = node.named_children
    if not children:
        return None
    outer = children[0]
    inner = children[1:]
    if inner and inner[0].type == "type_parameter":
        inner = inner[0].named_children
    name = text(outer).rpartition(".")[2]
    if name in _TRANSPARENT:
        return annotation(inner[0], depth + 1) if inner else None
    if name == "Union":
        return _either(inner, depth)
    if name in ("type", "Type"):
        ref = annotation(inner[0], depth + 1) if inner else None
        return None if ref is None else Ref(ref.base, ref.steps)
    if outer.type in ("identifier", "attribute"):
        return annotation(outer, depth + 1)
    return None


def _either(nodes: list[Node], depth: int) -> Ref | None:
    """The one type among alternatives that is not None."""
    kinds = [node for node in nodes if text(node) != "None"]
    return annotation(kinds[0], depth + 1) if len(kinds) == 1 else None


def signature(function: Node) -> str:
    """The function's name, names and types of its parameters, and the type of its result."""
    name = name_of(function.child_by_field_name("name"))
    parameters = function.child_by_field_name("parameters")
    shown = [] if parameters is None else [_parameter(node) for node in parameters.named_children]
    result = _type_text(function.child_by_field_name("return_type"))
    listed = ", ".join(filter(None, shown))
    return f"{name}({listed})" + (f" -> {result}" if result else "")


def lambda_signature(parameters: list[Node]) -> str:
    """The names of a lambda's parameters."""
    return f"<lambda>({', '.join(filter(None, map(_parameter, parameters)))})"


def _parameter(node: Node) -> str:
    match node.type:
        case "identifier":
            return name_of(node)
        case "list_splat_pattern":
            return "*" + name_of(first_inside(node))
        case "dictionary_splat_pattern":
            return "**" + name_of(first_inside(node))
        case "keyword_separator":
            return "*"
        case "positional_separator":
            return "/"
        case "default_parameter" | "typed_default_parameter":
            name = name_of(node.child_by_field_name("name"))
        case "typed_parameter":
            first = first_inside(node)
            name = "" if first is None else _parameter(first)
        case _:
            return ""
    written = _type_text(node.child_by_field_name("type"))
    return f"{name}: {written}" if written else name


def parameter_name(node: Node) -> str:
    """The variable that a parameter is."""
    while node.type in ("typed_parameter", "list_splat_pattern", "dictionary_splat_pattern"):
        first = first_inside(node)
        if first is None:
            return ""
        node = first
    if node.type in ("default_parameter", "typed_default_parameter"):
        return name_of(node.child_by_field_name("name"))
    return name_of(node) if node.type == "identifier" else ""


_OF_TYPES: Final = frozenset(
    words(
        """
        type identifier attribute generic_type type_parameter subscript binary_operator union_type
        list none ellipsis parenthesized_expression splat_type
        """
    )
)


def _type_text(node: Node | None) -> str:
    """A type as it is written, unless there is anything in it that is not made of names."""
    if node is None:
        return ""
    pending = [node]
    while pending:
        inner = pending.pop()
        if inner.type not in _OF_TYPES:
            return ""
        pending.extend(inner.named_children)
    return " ".join(text(node).split())
