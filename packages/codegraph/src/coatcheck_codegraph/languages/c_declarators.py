"""C's declarators, read from the outside in: ``*(*table[3])(int)`` says that ``table`` is an array.

C++ declares the same way, with qualified names and operators besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of

TOP: Final = "::"
"""Where names are that no namespace has."""

_NESTING_MAX: Final = 64
_THROUGH: Final = frozenset(
    {
        "attributed_declarator",
        "init_declarator",
        "ms_based_modifier",
        "parenthesized_declarator",
        "template_declaration",
    }
)
_INDIRECT: Final = frozenset({"array_declarator", "pointer_declarator", "reference_declarator"})
_MARKS: Final = {"pointer_declarator": "*", "reference_declarator": "&"}
_NAMES: Final = frozenset(
    {"destructor_name", "field_identifier", "identifier", "operator_name", "type_identifier"}
)


@dataclass(frozen=True, slots=True)
class Declarator:
    """A declared name. ``scope`` is what stands before it: ``a::B::`` in ``int a::B::f()``.

    ``function`` is the node that has the parameters, if the name is a function's; ``callable``
    says that the name is a variable that can be called, a pointer to a function. ``marks`` are the
    ``*`` and ``&`` before the name.
    """

    name: str
    scope: tuple[str, ...]
    function: Node | None
    callable: bool
    marks: str
    is_array: bool

    @property
    def is_repeated(self) -> bool:
        """Whether there may be several of it in a row."""
        return self.is_array or "*" in self.marks

    @property
    def is_indirect(self) -> bool:
        return self.is_array or bool(self.marks)


def declarator_of(node: Node | None) -> Declarator | None:
    """What a declarator declares; None if it has no name, as parameters may not."""
    function: Node | None = None
    callable_ = is_array = False
    marks = ""
    for _ in range(_NESTING_MAX):
        if node is None:
            return None
        kind = node.type
        if kind in _NAMES:
            return Declarator(name_of(node), (), function, callable_, marks, is_array)
        if kind == "function_declarator":
            function = node
            node = node.child_by_field_name("declarator")
        elif kind in _INDIRECT:
            is_array = is_array or kind == "array_declarator"
            marks += _MARKS.get(kind, "")
            if function is not None:
                function, callable_ = None, True
            node = node.child_by_field_name("declarator") or _last_named(node)
        elif kind in _THROUGH:
            node = node.child_by_field_name("declarator") or _last_named(node)
        elif kind == "qualified_identifier":
            *scope, name = (each for each in qualified_names(node) if each != TOP)
            function = function or _conversion(node)
            return Declarator(name, tuple(scope), function, callable_, marks, is_array)
        elif kind == "template_function":
            node = node.child_by_field_name("name")
        elif kind == "operator_cast":
            return Declarator(_operator_name(node), (), _last_named(node), False, "", False)
        else:
            return None
    return None


def qualified_names(node: Node | None) -> list[str]:
    """``a::B<int>::c`` as its names, without template arguments; ``::c`` from the TOP.

    Never empty.
    """
    names: list[str] = []
    for _ in range(_NESTING_MAX):
        if node is None:
            break
        kind = node.type
        if kind == "qualified_identifier":
            scope = node.child_by_field_name("scope")
            names += [TOP] if scope is None else _plain_names(scope)
            node = node.child_by_field_name("name")
        else:
            names += _plain_names(node)
            break
    return names or [""]


def _plain_names(node: Node) -> list[str]:
    kind = node.type
    if kind in ("template_type", "template_function", "template_method"):
        return [name_of(node.child_by_field_name("name"))]
    if kind in ("dependent_name", "dependent_type"):
        inner = _last_named(node)
        return qualified_names(inner) if inner is not None else []
    if kind == "operator_cast":
        return [_operator_name(node)]
    if kind == "nested_namespace_specifier":
        return [name_of(child) for child in node.named_children]
    return [name_of(node)]


def _conversion(node: Node) -> Node | None:
    """The parameters of ``A::operator bool() const``, which stand inside of the name."""
    last: Node | None = node
    while last is not None and last.type == "qualified_identifier":
        last = last.child_by_field_name("name")
    return _last_named(last) if last is not None and last.type == "operator_cast" else None


def _operator_name(node: Node) -> str:
    return f"operator {name_of(node.child_by_field_name('type'))}"


def _last_named(node: Node) -> Node | None:
    count = node.named_child_count
    return node.named_child(count - 1) if count else None
