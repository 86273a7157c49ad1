"""What small pieces of Ruby say: constants, symbols, parameters, bodies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of, text
from coatcheck_codegraph.extraction import STEPS_MAX

TOP: Final = "::"
"""Where constants are that are inside of no other."""

_NAME: Final = re.compile(r"\w+[?!=]?")
_NOTHING: Final[Sequence[Node]] = ()


def statements_in(node: Node) -> Sequence[Node]:
    body = node.child_by_field_name("body")
    return _NOTHING if body is None else body.named_children


def is_of_class(inside: Sequence[Node]) -> bool:
    """Whether a module's methods are its own, by ``extend self`` or ``module_function``."""
    for node in inside:
        if node.type == "identifier" and text(node) == "module_function":
            return True
        if node.type == "call" and name_of(node.child_by_field_name("method")) == "extend":
            arguments = node.child_by_field_name("arguments")
            if arguments is not None and any(
                each.type == "self" for each in arguments.named_children
            ):
                return True
    return False


def constant_names(node: Node | None) -> tuple[str, ...]:
    """``A::B`` as its names, ``::A`` from the TOP; nothing if it does not begin with a constant."""
    names: list[str] = []
    while node is not None and len(names) <= STEPS_MAX:
        if node.type == "constant":
            names.append(name_of(node))
            return tuple(reversed(names))
        if node.type != "scope_resolution":
            return ()
        names.append(name_of(node.child_by_field_name("name")))
        scope = node.child_by_field_name("scope")
        if scope is None:
            return (TOP, *reversed(names))
        node = scope
    return ()


def is_constant(name: str) -> bool:
    return name[:1].isupper()


def symbol(node: Node | None) -> str:
    """The name that a symbol or a string is, if it could be a method's."""
    name = name_of(node).strip(":\"'")
    return name if _NAME.fullmatch(name) else ""


def spelled_parameters(parameters: Node) -> list[str]:
    """The parameters by their names, without what they are if they are not given."""
    marks = {
        "block_parameter": "&{}",
        "hash_splat_parameter": "**{}",
        "keyword_parameter": "{}:",
        "splat_parameter": "*{}",
    }
    spelled = []
    for parameter in parameters.named_children:
        if parameter.type == "identifier":
            spelled.append(name_of(parameter))
        elif parameter.type != "comment":
            name = name_of(parameter.child_by_field_name("name"))
            spelled.append(marks.get(parameter.type, "{}").format(name) or "(...)")
    return spelled
