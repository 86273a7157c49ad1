"""TypeScript's type annotations: the class that one names, and its text in a signature."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import SIGNATURE_CHARACTERS_MAX, name_of, text
from coatcheck_codegraph.facts import Ref, Step
from coatcheck_codegraph.languages.ecmascript_walk import BlockScopes

_MAY_HOLD_LITERALS: Final = re.compile(rb"""['"`/0-9-]|true|false""")
_SHOWN_AS: Final = {
    "string": b"string",
    "template_string": b"string",
    "template_literal_type": b"string",
    "number": b"number",
    "unary_expression": b"number",
    "true": b"boolean",
    "false": b"boolean",
    "regex": b"RegExp",
    "comment": b" ",
}
_NESTED_MAX: Final = 50


def shown_type(node: Node | None) -> str:
    """A type's text, with every literal replaced by its kind and without comments."""
    if node is None or node.text is None or node.has_error:
        return ""
    if node.end_byte - node.start_byte > SIGNATURE_CHARACTERS_MAX:
        return "..."
    if not _MAY_HOLD_LITERALS.search(node.text):
        return text(node)
    shown, at = bytearray(), node.start_byte
    for literal in _literals(node):
        shown += node.text[at - node.start_byte : literal.start_byte - node.start_byte]
        shown += _SHOWN_AS[literal.type]
        at = literal.end_byte
    shown += node.text[at - node.start_byte :]
    return shown.decode("utf-8", "replace")


def _literals(node: Node) -> Iterator[Node]:
    pending = [node]
    while pending:
        found = pending.pop()
        if found.type in _SHOWN_AS:
            yield found
        else:
            pending.extend(reversed(found.children))


def type_ref(node: Node | None, scopes: BlockScopes, *, awaited: bool = False) -> Ref | None:
    """The class that a type names, if it names one; ``awaited``: that a promise is of."""
    for _ in range(_NESTED_MAX):
        if node is None:
            return None
        kind = node.type
        if kind in _WRAPPING:
            node = node.named_children[0] if node.named_child_count else None
        elif kind == "type_identifier" or kind == "identifier":
            return _named_type([name_of(node)], scopes)
        elif kind == "nested_type_identifier":
            return _named_type(_names(node), scopes)
        elif kind == "this_type":
            return Ref("self", ())
        elif kind == "union_type":
            node = _only_real_alternative(node)
        elif kind == "generic_type":
            name = node.child_by_field_name("name")
            arguments = node.child_by_field_name("type_arguments")
            called = name_of(name)
            if called in (_AWAITED if awaited else _TRANSPARENT) and arguments is not None:
                node = arguments.named_children[0] if arguments.named_child_count else None
            else:
                node = name
        elif kind == "predefined_type":
            return _BUILTINS.get(text(node))
        elif kind == "type_query":
            named = node.named_children[0] if node.named_child_count else None
            stated = type_ref(named, scopes) if named is not None else None
            return None if stated is None else Ref(stated.base, stated.steps)
        else:
            return None
    return None


_WRAPPING: Final = frozenset(
    {"type_annotation", "parenthesized_type", "readonly_type", "constraint"}
)
_TRANSPARENT: Final = frozenset(
    {"Awaited", "NonNullable", "Omit", "Partial", "Pick", "Readonly", "Required"}
)
_AWAITED: Final = _TRANSPARENT | {"Promise", "PromiseLike"}
_BUILTINS: Final = {
    name: Ref("name", (Step(name.capitalize()),), True)
    for name in ("string", "number", "boolean", "symbol")
}
_NOTHING: Final = frozenset({"null", "undefined"})


def _only_real_alternative(union: Node) -> Node | None:
    """``Foo`` of ``Foo | null | undefined``."""
    found: Node | None = None
    pending = [union]
    for _ in range(_NESTED_MAX):
        if not pending:
            break
        node = pending.pop()
        if node.type == "union_type":
            pending.extend(node.named_children)
        elif text(node) not in _NOTHING:
            if found is not None:
                return None
            found = node
    return found


def _names(node: Node) -> list[str]:
    names: list[str] = []
    at: Node | None = node
    while at is not None and len(names) < _NESTED_MAX:
        if at.type == "nested_type_identifier":
            names.append(name_of(at.child_by_field_name("name")))
            at = at.child_by_field_name("module")
        elif at.type == "nested_identifier":
            names.append(name_of(at.child_by_field_name("property")))
            at = at.child_by_field_name("object")
        else:
            names.append(name_of(at))
            at = None
    return names[::-1]


def _named_type(names: list[str], scopes: BlockScopes) -> Ref | None:
    meaning = scopes.meaning(names[0])
    if meaning is None:
        return None
    if isinstance(meaning, Ref):
        return meaning if len(names) == 1 else None
    return Ref("name", tuple(Step(name) for name in (meaning, *names[1:])), True)


def signature(name: str, function: Node) -> str:
    """``name(a: Foo, b?, ...rest): Bar``: a parameter that has a default value is shown as one
    that may be left out."""
    parameters = function.child_by_field_name("parameters")
    if parameters is not None:
        shown = ", ".join(filter(None, map(_parameter, parameters.named_children)))
    else:
        shown = name_of(function.child_by_field_name("parameter"))
    result = shown_type(
        function.child_by_field_name("return_type") or function.child_by_field_name("type")
    )
    generic = shown_type(function.child_by_field_name("type_parameters"))
    return f"{name}{generic}({shown}){result}"


def _parameter(node: Node) -> str:
    kind = node.type
    if kind == "required_parameter" or kind == "optional_parameter":
        pattern = _pattern(node.child_by_field_name("pattern"))
        optional = kind == "optional_parameter" or node.child_by_field_name("value") is not None
        return f"{pattern}{'?' if optional else ''}{shown_type(node.child_by_field_name('type'))}"
    if kind == "assignment_pattern":
        return f"{_pattern(node.child_by_field_name('left'))}?"
    return _pattern(node)


def _pattern(node: Node | None) -> str:
    if node is None:
        return ""
    if node.type in ("identifier", "this"):
        return name_of(node)
    if node.type == "rest_pattern":
        return "..." + _pattern(node.named_children[0] if node.named_child_count else None)
    if node.type == "object_pattern":
        return "{" + ", ".join(bound_names(node)) + "}"
    if node.type == "array_pattern":
        return "[" + ", ".join(bound_names(node)) + "]"
    return ""


def bound_names(pattern: Node) -> list[str]:
    """The variables that a pattern makes, in order."""
    names: list[str] = []
    pending = [pattern]
    while pending:
        node = pending.pop()
        kind = node.type
        if kind == "identifier" or kind == "shorthand_property_identifier_pattern":
            names.append(name_of(node))
        elif kind == "pair_pattern":
            value = node.child_by_field_name("value")
            if value is not None:
                pending.append(value)
        elif kind == "assignment_pattern" or kind == "object_assignment_pattern":
            left = node.child_by_field_name("left")
            if left is not None:
                pending.append(left)
        elif kind in ("object_pattern", "array_pattern", "rest_pattern"):
            pending.extend(reversed(node.named_children))
    return names
