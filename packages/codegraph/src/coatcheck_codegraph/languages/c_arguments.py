"""How many arguments a call of C++ gives, and a function takes: what tells overloads apart."""

from __future__ import annotations

from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of
from coatcheck_codegraph.languages.c_declarators import qualified_names

_ANY: Final = (0, -1)
_UNCOUNTED: Final = frozenset({"parameter_pack_expansion", "ERROR"})
_MADE_OF_MANY: Final = "initializer_list"


def arguments_in(given: Node | None) -> int:
    """How many there are between parentheses or braces; -1 if only the compiler can tell.

    Of what looks like a prototype and is none, ``Parser parser(text);``, the same.
    """
    if given is None:
        return 0
    listed = [child for child in given.named_children if not child.is_extra]
    kinds = {child.type for child in listed}
    if given.has_error or kinds & _UNCOUNTED or any(kind.startswith("preproc") for kind in kinds):
        return -1
    return len(listed)


def parameters_of(function: Node | None) -> tuple[int, int]:
    """How many arguments a function takes, at least and at most (-1: any number)."""
    listed = None if function is None else function.child_by_field_name("parameters")
    if listed is None or listed.has_error:
        return _ANY
    least = most = 0
    takes_more = False
    for child in listed.children:
        match child.type:
            case "parameter_declaration":
                if _made_of_many(child):
                    return _ANY  # braces give it as many as they like
                if not _is_void(child):
                    least, most = least + 1, most + 1
            case "optional_parameter_declaration":
                most += 1
            case "variadic_parameter_declaration" | "variadic_parameter" | "...":
                takes_more = True
            case kind if kind.startswith("preproc"):
                return _ANY
    return (least, -1 if takes_more else most)


def _is_void(parameter: Node) -> bool:
    """``f(void)`` takes nothing."""
    written = parameter.child_by_field_name("type")
    without_name = parameter.child_by_field_name("declarator") is None
    return without_name and written is not None and name_of(written) == "void"


def _made_of_many(parameter: Node) -> bool:
    written = parameter.child_by_field_name("type")
    return written is not None and qualified_names(written)[-1] == _MADE_OF_MANY
