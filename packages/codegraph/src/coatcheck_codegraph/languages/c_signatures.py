"""Functions of C and C++ as they are declared: the types of parameters and result, their names.

Nothing else of the text may get out: no literal, no default value, no size of an array, and nothing
of what the parser could not make sense of.
"""

from __future__ import annotations

import re
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of, named
from coatcheck_codegraph.facts import Ref
from coatcheck_codegraph.languages.c_declarators import Declarator
from coatcheck_codegraph.languages.c_references import type_of

_COMMENTS: Final = re.compile(r"/\*.*?(?:\*/|\Z)|//[^\n]*", re.DOTALL)
_LITERALS: Final = re.compile(r"""\b\d[\w.']*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'""")
_SIZES: Final = re.compile(r"\[[^\[\]]*\]")
_BODIES: Final = re.compile(r"\{.*", re.DOTALL)
_SPACED: Final = re.compile(r"\s+")


def signature_of(result: str, declarator: Declarator) -> str:
    """``int parse(const char *text, size_t length)``: no default value, no literal, no body."""
    listed = _parameters_of(declarator.function)
    written = f"{result} {declarator.marks}{declarator.name}({listed})".strip()
    return " ".join([written, *_qualifiers_of(declarator.function)])


def _qualifiers_of(function: Node | None) -> list[str]:
    """What a method says of its object: ``const``, by which two of one name may differ."""
    after = [] if function is None else function.named_children
    return [name_of(each) for each in after if each.type in ("type_qualifier", "ref_qualifier")]


def lambda_signature(name: str, node: Node) -> str:
    """``name(int x)``, for a function that has no name but that of the variable that holds it."""
    return f"{name}({_parameters_of(node.child_by_field_name('declarator'))})"


def _parameters_of(node: Node | None) -> str:
    listed = None if node is None else node.child_by_field_name("parameters")
    return ", ".join(
        _parameter_text(parameter)
        for parameter in ([] if listed is None else listed.named_children)
        if parameter.type not in ("comment", "ERROR")
    )


def result_text(node: Node, written: Node | None) -> str:
    return _type_text(_after_macro(node) or written)


def result_type(node: Node, declared: Declarator, written: Node | None) -> Ref | None:
    if written is not None and written.type == "placeholder_type_specifier":
        inside = [] if declared.function is None else declared.function.named_children
        for child in inside:
            if child.type == "trailing_return_type":
                return type_of(child.named_child(0))
    misplaced = _after_macro(node)
    return type_of(written) if misplaced is None else named(name_of(misplaced), is_type=True)


def _after_macro(node: Node) -> Node | None:
    """The type in ``API_MACRO type name();``, where the macro is taken for the type."""
    for child in node.named_children:
        if child.type == "ERROR" and child.named_child_count == 1:
            found = child.named_child(0)
            return found if found is not None and found.type == "identifier" else None
    return None


def without_literals(written: str) -> str:
    """Declarations as they are written, without what says more than names and types."""
    bare = _LITERALS.sub("", _COMMENTS.sub(" ", written))
    return _SPACED.sub(" ", _BODIES.sub("", _SIZES.sub("[]", bare))).strip()


def _type_text(node: Node | None) -> str:
    """A type as it is written, without what a struct has inside."""
    if node is None or node.has_error:
        return ""
    body = node.child_by_field_name("body")
    end = node.end_byte if body is None else body.start_byte
    return without_literals(_decoded(node, end))


def _parameter_text(node: Node) -> str:
    if node.has_error:
        return "_"
    default = node.child_by_field_name("default_value")
    if default is None:
        return without_literals(_decoded(node, node.end_byte))
    return without_literals(_decoded(node, default.start_byte)).removesuffix("=").rstrip()


def _decoded(node: Node, end: int) -> str:
    """The text of a node up to the byte ``end`` of the file."""
    return (node.text or b"")[: end - node.start_byte].decode("utf-8", "replace")
